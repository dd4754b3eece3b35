"""LiteRT's reference kernels. Skipped where LiteRT is not installed."""

import importlib

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from mobiles import mobile_program
from needs import need_litert
from quaver.engines.litert.reference import lowering
from quaver.export.integers import Inside, simulation

need_litert()

conftest = importlib.import_module("conftest")


def noise(count, size=16):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(7))


class Head(nn.Module):
    """What the shared net lacks: a difference, and linear layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(3, 8, 4, 4)
        self.hidden, self.scores = nn.Linear(128, 64), nn.Linear(64, 40)

    def forward(self, x):
        return self.scores(torch.relu(self.hidden((self.a(x) - self.b(x)).flatten(1))))


def pooled_to_a_size():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Conv2d(16, 16, 3))


@pytest.mark.slow
@pytest.mark.parametrize("net", [conftest.Patterns, Head, pooled_to_a_size])
def test_every_integer_inside_is_the_simulations(net, tmp_path):
    torch.manual_seed(0)
    program = mobile_program(net(), (8, 3, 16, 16)).made_for("litert_reference")
    file = quaver.export(program, tmp_path, target="litert_reference")

    ours = simulation(program)
    outputs, integers = ours.run(noise(64))
    theirs, whole = Inside.of(file, ours.scales).run(noise(64).numpy())

    assert {name: int((integers[name] != whole[name]).sum()) for name in whole} == dict.fromkeys(integers, 0)
    assert np.array_equal(outputs[0].numpy(), theirs[0])


@pytest.mark.slow
def test_the_delegates_arithmetic_is_another(tmp_path):
    torch.manual_seed(0)
    program = mobile_program(conftest.Patterns(), (8, 3, 16, 16))
    integers = [simulation(program.made_for(name)).run(noise(64)).integers for name in ("litert", "litert_reference")]

    differing = [int((first != second).sum()) for first, second in zip(*(one.values() for one in integers), strict=True)]

    assert 0 < sum(differing) < sum(one.size for one in integers[0].values()) / 20


@pytest.mark.parametrize("total", [-5, -3, -1, 1, 3, 5])
def test_a_half_is_rounded_upwards(total):
    assert lowering.rescaled(torch.tensor([total]), *lowering.multiplier(0.5)).tolist() == [(total + 1) // 2]


@pytest.mark.parametrize(("total", "ratio", "result"), [(6, 0.249, 2), (-6, 0.249, -2), (5, 0.2999, 2)])
def test_smaller_ratios_are_rounded_twice(total, ratio, result):
    """6 · 0.996 is 6, and a quarter of that 2, away from zero; rounded once, 6 · 0.249 is 1."""
    assert lowering.rescaled(torch.tensor([total]), *lowering.multiplier(ratio)).tolist() == [result]
