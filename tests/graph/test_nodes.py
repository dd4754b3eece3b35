"""What is asked of one node, of tiny graphs made by hand."""

import math
import operator

import pytest
import torch

from graphs import stored
from quaver.graph.nodes import activation_inputs, clamp_bounds, facts, type_of, weight_of
from quaver.operators import UNKNOWN
from quaver.xnnpack.lowering import weight_in_int8

aten = torch.ops.aten
quantized = torch.ops.quantized_decomposed


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


@pytest.mark.parametrize("number", [aten.sym_size.int, aten.item.default, operator.mul])
def test_numbers_are_no_tensors_to_compute_on(graph, x, number):
    factor = graph.call_function(number, (x, 0))
    product = graph.call_function(aten.mul.Tensor, (x, factor))

    assert activation_inputs(product) == [x]
    assert type_of(product) == "scale"


def test_a_weight_is_what_the_model_stores_or_computes_from_that(graph, x):
    weight = stored(graph)
    computed = graph.call_function(aten.relu.default, (weight,))

    assert weight_of(graph.call_function(aten.conv2d.default, (x, weight))) is weight
    assert weight_of(graph.call_function(aten.conv2d.default, (x, computed))) is None
    computed.meta["constant"] = True
    assert weight_of(graph.call_function(aten.conv2d.default, (x, computed))) is computed
    assert weight_of(graph.call_function(aten.conv_transpose3d.input, (x, weight))) is None  # which no pass quantizes
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
