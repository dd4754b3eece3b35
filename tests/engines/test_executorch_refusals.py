"""What is refused before ExecuTorch is asked; none of it needs executorch."""

import sys

import pytest
import torch
from torch import nn

import quaver
from quaver.engines.executorch.writer import serialized
from quaver.errors import EngineError


def test_without_executorch_the_way_to_install_it_is_said(monkeypatch, images):
    program = quaver.capture(nn.ReLU(), (images,))
    monkeypatch.setitem(sys.modules, "executorch.exir", None)
    monkeypatch.setitem(sys.modules, "executorch.backends.xnnpack.partition.xnnpack_partitioner", None)

    with pytest.raises(EngineError, match=r"executorch is not installed.*pip install 'quaver\[executorch\]'"):
        serialized(program)


def test_a_result_for_the_whole_batch_is_refused(images):
    class Total(nn.Module):
        def forward(self, x):
            return x * 2, x.sum(0)

    program = quaver.capture(Total(), (images,))

    with pytest.raises(EngineError, match="output 1 of the model has no batch in front"):
        serialized(program)


def test_a_model_of_one_batch_size_may_give_what_it_likes(monkeypatch):
    class Fixed(nn.Module):
        def forward(self, x):
            return x.view(4, 6).sum()

    program = quaver.capture(Fixed(), (torch.zeros(4, 6),))
    assert not program.signature.dynamic_batch
    monkeypatch.setitem(sys.modules, "executorch.backends.xnnpack.partition.xnnpack_partitioner", None)

    with pytest.raises(EngineError, match="executorch is not installed"):  # and not refused before that
        serialized(program)
