"""The table of ops; and a new activation, which is one row."""

import pytest
import torch
from torch import nn

import quaver
from quaver.engines import DEFAULT
from quaver.graph.nodes import (
    is_fake_quant,
    ops_by_name,
)
from quaver.int8 import kernels
from quaver.operators import OPS, OpFacts, channel_axis, packets_of, saturation_axis_of
from quaver.program.reason import ComputedWith, NotListed

aten = torch.ops.aten
quantized = torch.ops.quantized_decomposed


def test_every_row_is_an_op_of_torch():
    strange = [name for name in OPS if name != "getitem" and not hasattr(aten, name)]
    strange += [name for row in OPS.values() for name in row.dispatched if not hasattr(aten, name)]

    assert strange == []


def test_bounds_are_named_as_in_the_schema():
    for name, row in OPS.items():
        named = [bound for bound in row.bounds or () if isinstance(bound, str)]
        arguments = [argument.name for argument in getattr(aten, name).default._schema.arguments] if named else []

        assert set(named) <= set(arguments), name


def test_rows_of_one_type_have_the_same_axes():
    for name in ("matmul", "mm"):
        assert OPS[name].weight == OPS["matmul"].weight
    for kind in ("convolution", "linear"):
        types = [OPS[name].type for name in packets_of(kind)]
        assert len(types) == len(set(types))


@pytest.mark.parametrize(
    ("op_type", "shape", "groups", "channels", "saturating"),
    [
        ("conv2d", (8, 4, 3, 3), 1, 0, 1),
        ("conv2d", (8, 4, 3, 3), 2, 0, 1),
        ("depthwise_conv2d", (8, 1, 3, 3), 8, 0, None),
        ("depthwise_conv2d", (16, 1, 3, 3), 8, 0, 1),  # two filters per channel: run as groups
        ("conv2d_transpose", (8, 4, 2, 2), 1, 1, 0),
        ("conv2d_transpose", (8, 4, 2, 2), 8, 1, None),
        ("mul", (8, 4), 1, 0, 1),
        ("matmul", (4, 8), 1, -1, 0),
    ],
)
def test_axes_of_weights(op_type, shape, groups, channels, saturating):
    assert channel_axis(op_type) == channels
    assert saturation_axis_of(op_type, shape, groups) == saturating


# a row is all that an activation needs


class Residual(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.first, self.body = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
        self.activation = activation

    def forward(self, x):
        x = self.first(x).relu()
        return self.activation(self.body(x)) + x


def prepared(activation):
    return quaver.quant_aware(Residual(activation), example_inputs=(torch.zeros(2, 3, 4, 4),))


def rounded_operands(program):
    return [is_fake_quant(value) for value in ops_by_name(program.graphs["eval"])["elementwise_add"].args]


def adds_in_steps(program):
    return kernels.added in [node.target for node in DEFAULT.lowering().run(program.graphs["eval"]).nodes]


@pytest.mark.parametrize("activation", [torch.tanh, nn.functional.mish, nn.functional.silu, torch.relu])
def test_nothing_is_rounded_between_a_layer_its_activation_and_a_sum(activation):
    program = prepared(activation)

    assert rounded_operands(program) == [False, True]
    assert adds_in_steps(program)


def test_a_hard_sigmoid_runs_by_itself_and_is_rounded_before_a_sum():
    program = prepared(nn.functional.hardsigmoid)

    assert rounded_operands(program) == [True, True]
    assert not adds_in_steps(program)
    assert program.placements.reasons["hard_sigmoid"] == NotListed("hard_sigmoid")


def test_an_activation_is_one_row(monkeypatch):
    without = prepared(nn.functional.selu)
    assert rounded_operands(without) == [True, True]
    assert not adds_in_steps(without)
    assert without.placements.reasons["selu"] == NotListed("selu")

    monkeypatch.setitem(OPS, "selu", OpFacts(kind="activation", fused=True))

    program = prepared(nn.functional.selu)
    assert rounded_operands(program) == [False, True]
    assert adds_in_steps(program)
    assert program.placements.reasons["selu"] == ComputedWith("body")
