"""What ONNX Runtime's files are rewritten to, on models of a few nodes."""

import numpy as np

from onnx_models import node, parsed, types
from quaver.engines.onnxruntime.writer import drop_idle_clamps, fit_biases, round_before_clamps, store_signed_as_unsigned
from quaver.onnx.editing import array_of

WEIGHT = "int8[2,2,1,1] weight = {1, 2, 3, 4}, float[2] steps = {0.5, 0.5}, int8[2] zeros = {0, 0}"
CONVOLVED = """
    rounded = DequantizeLinear(integers, scale, zero)
    real = DequantizeLinear<axis = 0>(weight, steps, zeros)
"""


def clamped(zero, clamp, scale=0.1, bias=""):
    """A convolution, a clamp and a rounding, as an exporter writes them."""
    return parsed(
        f"""net (float[N,2,4,4] x) => (float[N,2,4,4] y)
        <float scale = {{{scale}}}, {zero}, {WEIGHT}{bias and ", float[2] bias = " + bias}>
        {{
            integers = QuantizeLinear(x, scale, zero)
            {CONVOLVED}
            sums = Conv(rounded, real{bias and ", bias"})
            low = {clamp}
            whole = QuantizeLinear(low, scale, zero)
            y = DequantizeLinear(whole, scale, zero)
        }}"""
    )


def test_signed_activations_are_stored_unsigned_and_weights_as_they_are():
    model = clamped("int8 zero = {0}", "Relu(sums)")

    store_signed_as_unsigned(model.graph)

    points = [array_of(node.inputs[2]) for node in model.graph if node.op_type.endswith("Linear")]
    assert [(point.dtype, point.tolist()) for point in points if point.ndim == 0] == [(np.uint8, 128)] * 4
    assert [point.dtype for point in points if point.ndim] == [np.int8]


def test_a_clamp_that_the_rounding_does_as_well_is_left_out():
    model = clamped("uint8 zero = {0}", "Relu(sums)")

    drop_idle_clamps(model.graph)

    assert "Relu" not in types(model)
    assert node(model, "QuantizeLinear", 1).inputs[0].name == "sums"


def test_a_clamp_onto_a_grid_that_goes_further_stays():
    model = clamped("int8 zero = {0}", "Relu(sums)")

    drop_idle_clamps(model.graph)

    assert "Relu" in types(model)


def test_what_a_convolution_gives_is_rounded_in_front_of_a_clamp_too():
    model = clamped("int8 zero = {0}", "Relu(sums)")

    round_before_clamps(model.graph)

    assert types(model)[-6:] == ["Conv", "QuantizeLinear", "DequantizeLinear", "Relu", "QuantizeLinear", "DequantizeLinear"]
    early, late = node(model, "QuantizeLinear", 1), node(model, "QuantizeLinear", 2)
    assert early.inputs[1:] == late.inputs[1:]


def test_a_bias_of_more_steps_than_32_bits_count_gets_larger_steps():
    model = clamped("uint8 zero = {0}", "Relu(sums)", scale=1e-9, bias="{1.0, 1000000.0}")
    drop_idle_clamps(model.graph)  # nothing may stand between the sum and its rounding
    before = array_of(node(model, "DequantizeLinear", 1).inputs[1])

    fit_biases(model.graph)

    weight = node(model, "DequantizeLinear", 1)
    steps = array_of(weight.inputs[1])
    biases = np.array([1.0, 1e6])
    assert (biases / (steps * 1e-9)).max() <= 2**30 < (biases / (before * 1e-9)).min()
    assert np.log2(steps / before).tolist() == np.log2(steps / before).round().tolist()
    assert weight.attributes["axis"].as_int() == 0
