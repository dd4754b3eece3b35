"""While graphs are built nobody looks for garbage; afterwards it is as it was."""

import gc

import pytest
import torch
from torch import nn

import quaver
from quaver.garbage import without_collecting


@pytest.fixture(params=[True, False])
def collects(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_it_is_as_it_was_behind_the_block_and_behind_an_error_in_it(collects):
    with without_collecting():
        assert not gc.isenabled()
    assert gc.isenabled() is collects

    with pytest.raises(ZeroDivisionError), without_collecting():
        _ = 1 / 0
    assert gc.isenabled() is collects


def test_a_model_is_captured_without_collecting():
    class Asking(nn.Module):
        def forward(self, x):
            seen.append(gc.isenabled())
            return x

    seen = []
    quaver.capture(Asking(), (torch.zeros(2, 3),))

    assert set(seen) == {False}
    assert gc.isenabled()
