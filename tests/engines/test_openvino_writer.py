"""What OpenVINO's files are rewritten to before it reads them, on models of a few nodes."""

import numpy as np
import pytest

pytest.importorskip("openvino")

from onnx_models import node, parsed, types
from quaver.engines.openvino.writer import pad_apart, scale_apart
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
