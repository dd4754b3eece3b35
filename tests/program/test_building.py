"""A graph becomes code when it first runs: what nobody runs is not lowered."""

import torch
from torch import nn

import quaver
from quaver.passes import placement
from quaver.program import Program


def counted(monkeypatch, owner, name):
    calls = []
    plain = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: calls.append(name) or plain(*args))
    return calls


def test_from_a_model_to_training_nothing_is_lowered_and_quantizers_are_placed_once(monkeypatch):
    lowered, placed = counted(monkeypatch, Program, "lowered"), counted(monkeypatch, placement, "without_quantizers")
    net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), torch.randn(2, 3, 8, 8)

    prepared = quaver.quant_aware(net, example_inputs=(x,))
    prepared.train()(x)

    assert not lowered
    assert len(placed) == len(prepared.graphs)
    prepared.eval()(x)
    prepared(x)
    assert len(lowered) == 1
