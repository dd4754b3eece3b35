"""What is known of ops, asked of tiny graphs made by hand; and a new activation, which is one row."""

import math
import operator

import pytest
import torch
from torch import fx, nn

import quaver
from quaver.engines import DEFAULT
from quaver.engines.executorch.lowering import weight_in_int8
from quaver.graph.nodes import (
    activation_inputs,
    clamp_bounds,
    facts,
    is_fake_quant,
    ops_by_name,
    type_of,
    weight_of,
)
from quaver.graph.patterns import ends_layer, never_negative
from quaver.int8 import kernels
from quaver.operators import OPS, UNKNOWN, OpFacts, channel_axis, packets_of, saturation_axis_of
from quaver.program.reason import ComputedWith, NotListed

aten = torch.ops.aten
quantized = torch.ops.quantized_decomposed


@pytest.fixture
def graph():
    return fx.Graph()


@pytest.fixture
def x(graph):
    return graph.placeholder("x")


def stored(graph, rank=4):
    node = graph.get_attr("weight")
    node.meta = {"rank": rank}
    return node


# the table


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


# the questions


def test_nothing_is_known_of_what_is_no_call(graph, x):
    assert facts(x) is UNKNOWN
    assert facts(None) is UNKNOWN
    assert facts(graph.call_function(aten.cumsum.default, (x, 0))) is UNKNOWN


@pytest.mark.parametrize(
    ("target", "arguments", "op_type"),
    [
        (aten.linear.default, (), "mul"),
        (aten.silu.default, (), "swish"),
        (aten.gelu.default, (), "gelu"),  # no name of its own
        (aten.erf.default, (), "erf"),  # no row
        (aten.hardtanh.default, (0.0, 6.0), "relu6"),
        (aten.hardtanh.default, (-1.0, 1.0), "hardtanh"),
        (aten.hardtanh.default, (), "hardtanh"),
        (aten.add.Tensor, (1,), "scale"),
        (aten.detach.default, (), None),
        (operator.getitem, (0,), None),
    ],
)
def test_types_have_the_names_of_the_field(graph, x, target, arguments, op_type):
    assert type_of(graph.call_function(target, (x, *arguments))) == op_type


def test_a_convolution_with_a_filter_per_channel_is_depthwise(graph, x):
    plain = graph.call_function(aten.conv2d.default, (x, stored(graph)))
    grouped = graph.call_function(aten.conv2d.default, (x, stored(graph), None, [1], [0], [1], 8))

    assert type_of(plain, (8, 1, 3, 3)) == "conv2d"
    assert type_of(grouped, (8, 2, 3, 3)) == "conv2d"
    assert type_of(grouped, (8, 1, 3, 3)) == "depthwise_conv2d"


def test_a_sum_with_a_parameter_or_another_tensor_is_no_scaling(graph, x):
    assert type_of(graph.call_function(aten.add.Tensor, (x, x))) == "elementwise_add"
    assert type_of(graph.call_function(aten.add.Tensor, (x, stored(graph)))) == "elementwise_add"


def test_a_weight_is_what_the_model_stores(graph, x):
    weight = stored(graph)
    computed = graph.call_function(aten.relu.default, (weight,))

    assert weight_of(graph.call_function(aten.conv2d.default, (x, weight))) is weight
    assert weight_of(graph.call_function(aten.conv2d.default, (x, computed))) is None
    assert weight_of(graph.call_function(aten.conv3d.default, (x, weight))) is None  # which no pass quantizes
    assert weight_of(graph.call_function(aten.add.Tensor, (x, weight))) is None


@pytest.mark.parametrize(("target", "rank", "is_one"), [(aten.matmul.default, 2, True), (aten.matmul.default, 3, False)])
def test_the_weight_of_a_product_is_a_matrix(graph, x, target, rank, is_one):
    weight = stored(graph, rank)

    assert weight_of(graph.call_function(target, (x, weight))) is (weight if is_one else None)


def test_a_product_of_matrices_per_image_has_no_weight_on_any_engine(graph, x):
    # to XNNPACK, a product with a weight is a linear layer, whose weight is one matrix
    def product(target):
        left = graph.call_function(quantized.dequantize_per_tensor.default, (x, 0.1, 0, -128, 127, torch.int8))
        right = graph.call_function(quantized.dequantize_per_tensor.default, (stored(graph), 0.1, 0, -128, 127, torch.int8))
        node = graph.call_function(target, (left, right))
        graph.call_function(quantized.quantize_per_tensor.default, (node, 0.1, 0, -128, 127, torch.int8))
        return node

    assert weight_in_int8(product(aten.mm.default)) is not None
    assert weight_in_int8(product(aten.bmm.default)) is None
    assert weight_of(graph.call_function(aten.bmm.default, (x, stored(graph, 2)))) is None
    assert facts(product(aten.bmm.default)).kind == "matrix product"


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


def test_activation_inputs_are_tensors_that_depend_on_the_input(graph, x):
    y, weight = graph.call_function(aten.relu.default, (x,)), stored(graph)

    assert activation_inputs(graph.call_function(aten.concat.default, ([x, y, weight], 1))) == [x, y]
    assert activation_inputs(graph.call_function(aten.stack.default, ([y, x],))) == [y, x]
    assert activation_inputs(graph.call_function(aten.mul.Tensor, (x, y))) == [x, y]
    assert activation_inputs(graph.call_function(aten.mul.Tensor, (x, 2))) == [x]
    assert activation_inputs(graph.call_function(aten.conv2d.default, (x, y))) == [x]


@pytest.mark.parametrize(
    ("target", "moves"),
    [
        (aten.max_pool2d.default, True),
        (aten.avg_pool2d.default, False),
        (aten.upsample_nearest2d.vec, True),
        (aten.upsample_bilinear2d.vec, False),
        (aten.concatenate.default, True),
        (aten.unbind.int, True),
        (aten.relu.default, False),
        (aten.pad.default, False),  # with a number that the grid may not have
    ],
)
def test_an_op_that_moves_values_keeps_them_on_their_grid(graph, x, target, moves):
    assert (facts(graph.call_function(target, (x,))).kind == "move") is moves


@pytest.mark.parametrize(
    ("target", "arguments", "options", "bounds"),
    [
        (aten.relu.default, (), {}, (0.0, math.inf)),
        (aten.relu6.default, (), {}, (0.0, 6.0)),
        (aten.hardtanh.default, (), {}, (-1.0, 1.0)),
        (aten.hardtanh.default, (-2, 3), {}, (-2.0, 3.0)),
        (aten.clamp.default, (1,), {}, (1.0, math.inf)),
        (aten.clamp.default, (), {"max": 4}, (-math.inf, 4.0)),
        (aten.hardsigmoid.default, (), {}, None),
    ],
)
def test_bounds_of_clamps(graph, x, target, arguments, options, bounds):
    assert clamp_bounds(graph.call_function(target, (x, *arguments), options)) == bounds


def test_bounds_that_are_tensors_are_not_known(graph, x):
    assert clamp_bounds(graph.call_function(aten.clamp.Tensor, (x, x))) is None


SIGNS = {
    "relu": (lambda g, x: g(aten.relu.default, x), True),
    "sigmoid": (lambda g, x: g(aten.sigmoid.default, x), True),
    "clamp from 1": (lambda g, x: g(aten.clamp.default, x, 1), True),
    "clamp to 1": (lambda g, x: g(aten.clamp.default, x, None, 1), False),
    "tanh": (lambda g, x: g(aten.tanh.default, x), False),
    "pool of a relu": (lambda g, x: g(aten.avg_pool2d.default, g(aten.relu.default, x), 2), True),
    "pool of anything": (lambda g, x: g(aten.avg_pool2d.default, x, 2), False),
    "part of a relu": (lambda g, x: g(operator.getitem, g(aten.split.Tensor, g(aten.relu.default, x), 2), 0), True),
    "sum of a relu and itself": (lambda g, x: g(aten.add.Tensor, *[g(aten.relu.default, x)] * 2), True),
    "sum of a relu and a number": (lambda g, x: g(aten.add.Tensor, g(aten.relu.default, x), -1), False),
    "difference of relus": (lambda g, x: g(aten.sub.Tensor, *[g(aten.relu.default, x)] * 2), False),
    "bicubic relu": (lambda g, x: g(aten.upsample_bicubic2d.vec, g(aten.relu.default, x), None, False, [2.0, 2.0]), False),
    "half a concatenation": (lambda g, x: g(aten.cat.default, [g(aten.relu.default, x), x], 1), False),
    "input": (lambda g, x: x, False),
}


@pytest.mark.parametrize("case", SIGNS)
def test_what_cannot_be_negative(graph, x, case):
    build, expected = SIGNS[case]

    assert bool(never_negative([build(lambda target, *args: graph.call_function(target, args), x)])) is expected


def test_a_parameter_or_alpha_may_make_a_sum_negative(graph, x):
    positive = graph.call_function(aten.relu.default, (x,))

    assert not never_negative([graph.call_function(aten.add.Tensor, (positive, stored(graph)))])
    assert not never_negative([graph.call_function(aten.add.Tensor, (positive, positive), {"alpha": -1})])


def test_a_long_way_back_is_no_recursion(graph, x):
    node = graph.call_function(aten.relu.default, (x,))
    for _ in range(5000):
        node = graph.call_function(aten.add.Tensor, (node, node))

    assert never_negative([node])


def test_a_layer_ends_behind_its_batch_norm_and_activation(graph, x):
    convolution = graph.call_function(aten.conv2d.default, (x, stored(graph)))
    norm = graph.call_function(aten.batch_norm.default, (convolution,))
    activation = graph.call_function(aten.tanh.default, (norm,))
    assert not ends_layer(activation)  # nobody reads it

    graph.call_function(aten.add.Tensor, (activation, x))
    assert ends_layer(activation)

    graph.call_function(aten.add.Tensor, (norm, x))
    assert not ends_layer(activation)


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
