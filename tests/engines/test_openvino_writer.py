"""What OpenVINO's files are rewritten to before it reads them, on models of a few nodes."""

import numpy as np
import pytest

pytest.importorskip("openvino")

from onnx_models import node, parsed, types
from quaver.engines.openvino.runner import ov
from quaver.engines.openvino.writer import (
    NOTHING,
    _give_biases,
    _keep_constants_unrounded,
    ops,
    pad_apart,
    scale_apart,
    unshare_weights,
)
from quaver.onnx.editing import array_of


def pooled(zero, counts_padding=1):
    return parsed(
        f"""net (float[N,2,4,4] x) => (float[N,2,4,4] y)
        <float scale = {{0.1}}, {zero}>
        {{
            integers = QuantizeLinear(x, scale, zero)
            rounded = DequantizeLinear(integers, scale, zero)
            y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = {counts_padding}>(rounded)
        }}"""
    )


def test_a_padded_average_of_a_signed_tensor_is_padded_apart_and_rounded_again():
    model = pooled("int8 zero = {0}")

    pad_apart(model.graph)

    assert types(model)[2:] == ["Pad", "QuantizeLinear", "DequantizeLinear", "AveragePool"]
    assert array_of(node(model, "Pad").inputs[1]).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert list(node(model, "AveragePool").attributes["pads"].as_ints()) == [0, 0, 0, 0]
    assert node(model, "QuantizeLinear", 1).inputs[1:] == node(model, "QuantizeLinear").inputs[1:]


@pytest.mark.parametrize(
    "model", [pooled("uint8 zero = {0}"), pooled("int8 zero = {0}", 0)], ids=["unsigned", "not counted"]
)
def test_other_averages_are_left_alone(model):
    pad_apart(model.graph)

    assert types(model) == ["QuantizeLinear", "DequantizeLinear", "AveragePool"]


def scaled(factors, shape):
    return parsed(
        f"""net (float[N,3,2] x) => (float[N,3,2] y)
        <float[2,2] weight = {{1, 0, 0, 1}}, float{shape} factors = {{{factors}}}>
        {{
            products = MatMul(x, weight)
            y = Mul(products, factors)
        }}"""
    )


def test_factors_per_position_behind_a_linear_layer_are_applied_in_a_dimension_more():
    model = scaled("1, 2, 3", "[3,1]")

    scale_apart(model.graph)

    assert types(model) == ["MatMul", "Unsqueeze", "Mul", "Squeeze"]
    assert [value.name for value in model.graph.outputs] == ["y"]
    assert model.graph.outputs[0].producer().op_type == "Squeeze"
    assert np.array_equal(array_of(node(model, "Mul").inputs[1]), [[1], [2], [3]])


def test_factors_per_channel_are_left_to_the_layer():
    model = scaled("1, 2", "[2]")

    scale_apart(model.graph)

    assert types(model) == ["MatMul", "Mul"]


def layer(kind, bias=None, is_last=False):
    """A convolution or linear layer with two filters, a bias if one is given, and a ReLU unless it is the last."""
    x = ops.parameter([-1, 3, 4, 4] if kind == "convolution" else [-1, 3], np.float32)
    weight = ops.constant(np.ones([2, 3, 1, 1] if kind == "convolution" else [2, 3], np.float32))
    if kind == "convolution":
        result = ops.convolution(x, weight, [1, 1], [0, 0], [0, 0], [1, 1])
    else:
        result = ops.matmul(x, weight, False, True)
    if bias is not None:
        result = ops.add(
            result,
            ops.constant(np.array(bias, np.float32).reshape([2] + [1] * (x.output(0).partial_shape.rank.get_length() - 2))),
        )
    return ov.Model([result if is_last else ops.relu(result)], [x], "layer")


@pytest.mark.parametrize("kind", ["convolution", "linear"])
@pytest.mark.parametrize(
    ("given", "written"), [(None, [NOTHING, 0]), ([0, 0], [NOTHING, 0]), ([0, 0.5], [0, 0.5])], ids=["none", "zeros", "some"]
)
def test_a_layer_without_bias_gets_one_of_next_to_nothing(kind, given, written):
    model = layer(kind, given)

    _give_biases(model)

    (total,) = [op for op in model.get_ordered_ops() if op.get_type_name() == "Add"]
    assert total.input_value(1).get_node().data.flatten().tolist() == np.array(written, np.float32).tolist()
    assert [reader.get_node().get_type_name() for reader in total.output(0).get_target_inputs()] == ["Relu"]


@pytest.mark.parametrize("kind", ["convolution", "linear"])
def test_a_last_layer_gets_no_bias_for_nothing_rounds_what_it_gives(kind):
    model = layer(kind, is_last=True)

    _give_biases(model)

    assert "Add" not in [op.get_type_name() for op in model.get_ordered_ops()]


def test_a_product_of_two_activations_gets_no_bias():
    x = ops.parameter([-1, 3, 3], np.float32)
    model = ov.Model([ops.matmul(x, x, False, True)], [x], "product")

    _give_biases(model)

    assert "Add" not in [op.get_type_name() for op in model.get_ordered_ops()]


def test_two_layers_with_one_weight_get_one_each():
    model = parsed(
        """net (float[N,2] x) => (float[N,2] y)
        <int8[2,2] weight = {1, 2, 3, 4}, float scale = {0.1}, int8 zero = {0}>
        {
            first = DequantizeLinear(weight, scale, zero)
            once = MatMul(x, first)
            second = DequantizeLinear(weight, scale, zero)
            y = MatMul(once, second)
        }"""
    )

    unshare_weights(model.graph)

    weights = [node(model, "DequantizeLinear", place).inputs[0] for place in (0, 1)]
    assert weights[0] is not weights[1]
    assert np.array_equal(*map(array_of, weights))


@pytest.mark.parametrize("image", [[1.0, -1.0], [np.nan, 2.0], [-np.inf, 2.0]])
def test_a_rounded_constant_depends_on_the_image_and_stays_what_it_is(image):
    x, ends = ops.parameter([2], np.float32), [ops.constant(np.float32(end)) for end in (0, 2.55)]
    queries = ops.broadcast(ops.constant(np.float32(1.5)), ops.shape_of(x))
    model = ov.Model([ops.fake_quantize(queries, *ends, *ends, 256)], [x], "queries")

    _keep_constants_unrounded(model)

    (rounding,) = [op for op in model.get_ordered_ops() if op.get_type_name() == "FakeQuantize"]
    assert rounding.input_value(0).get_node().get_type_name() == "Add"
    (rounded,) = ov.compile_model(model, "CPU")(np.array(image, np.float32)).values()
    np.testing.assert_array_equal(rounded, np.full(2, np.float32(1.5)))


def test_what_is_made_of_the_image_is_rounded_as_it_was():
    x, ends = ops.parameter([2], np.float32), [ops.constant(np.float32(end)) for end in (0, 2.55)]
    model = ov.Model([ops.fake_quantize(ops.relu(x), *ends, *ends, 256)], [x], "values")

    _keep_constants_unrounded(model)

    assert "Add" not in [op.get_type_name() for op in model.get_ordered_ops()]
