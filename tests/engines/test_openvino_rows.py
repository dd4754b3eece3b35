"""Linear layers and layer norms of more than three dimensions, on OpenVINO models of a few nodes."""

import numpy as np
import pytest

pytest.importorskip("openvino")

from quaver.engines.openvino.rows import put_on_rows
from quaver.engines.openvino.runner import ov

ops = ov.opset13

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((8, 6), np.float32)


def model_of(network, *sizes):
    """A model of one input, and what a network makes of it."""
    image = ops.parameter(sizes, np.float32, name="x")
    return ov.Model([network(image)], [image], "net")


def linear(x):
    return ops.add(ops.matmul(x, ops.constant(WEIGHT), False, False), ops.constant(np.ones((1, 1, 1, 6), np.float32)))


def norm(x):
    return ops.mvn(x, np.array([-1]), True, 1e-6, "INSIDE_SQRT")


def rounded(x, name="y.rounded"):
    rounding = ops.fake_quantize(x, *(ops.constant(np.float32(end)) for end in (-4, 4, -4, 4)), levels=256)
    rounding.output(0).set_names({name})
    return rounding


def ranks(model, kind):
    return [op.get_input_partial_shape(0).rank.get_length() for op in model.get_ordered_ops() if op.get_type_name() == kind]


def kinds(model):
    return [op.get_type_name() for op in model.get_ordered_ops() if op.get_type_name() not in ("Constant", "Result")]


def computed(model, image):
    return ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(image)[0]


def both_ways(network, *sizes, image=(2, 3, 5, 8), names=()):
    """The model on rows, having computed what it computed before."""
    model = model_of(network, *sizes)
    pixels = RANDOM.standard_normal(image, np.float32)
    before, shape = computed(model, pixels), model.output(0).get_partial_shape()
    put_on_rows(model, names)
    np.testing.assert_allclose(computed(model, pixels), before, rtol=1e-5, atol=1e-5)
    assert model.output(0).get_partial_shape() == shape
    return model


@pytest.mark.parametrize("sizes", [(-1, 3, 5, 8), (2, 3, 5, 8), (-1, -1, 5, 8), (-1, -1, -1, 8)])
def test_a_layer_and_its_rounding_have_three_dimensions(sizes):
    model = both_ways(lambda x: rounded(ops.relu(linear(x))), *sizes)

    assert ranks(model, "MatMul") == ranks(model, "FakeQuantize") == [3]
    assert kinds(model).index("FakeQuantize") < max(place for place, kind in enumerate(kinds(model)) if kind == "Reshape")


def test_a_norm_has_three_dimensions():
    assert ranks(both_ways(lambda x: rounded(norm(x)), -1, 3, 5, 8), "MVN") == [3]


def test_a_norm_over_more_than_channels_is_left_alone():
    model = both_ways(lambda x: ops.mvn(x, np.array([1, -1]), True, 1e-6, "INSIDE_SQRT"), -1, 3, 5, 8)

    assert kinds(model) == ["Parameter", "MVN"]


def test_three_dimensions_are_left_alone():
    model = both_ways(lambda x: ops.matmul(x, ops.constant(WEIGHT), False, False), -1, 5, 8, image=(2, 5, 8))

    assert kinds(model) == ["Parameter", "MatMul"]


def test_values_read_twice_are_brought_back_for_both():
    model = both_ways(lambda x: ops.multiply(ops.relu(y := linear(x)), ops.sigmoid(y)), -1, 3, 5, 8)

    assert ranks(model, "Relu") == ranks(model, "Sigmoid") == [4]


def test_a_constant_for_each_position_ends_the_rows():
    positions = RANDOM.standard_normal((1, 3, 5, 6), np.float32)
    model = both_ways(lambda x: rounded(ops.add(linear(x), ops.constant(positions))), -1, 3, 5, 8)

    assert ranks(model, "MatMul") == [3]
    assert ranks(model, "FakeQuantize") == [4]


def test_tensors_that_files_are_compared_by_keep_name_and_shape():
    model = both_ways(lambda x: ops.relu(rounded(linear(x))), -1, 3, 5, 8, names={"y.rounded"})

    (shown,) = [port for op in model.get_ordered_ops() for port in op.outputs() if "y.rounded" in port.get_names()]
    assert shown.get_partial_shape() == ov.PartialShape([-1, 3, 5, 6])


def test_a_layer_that_reads_columns_is_left_alone():
    model = both_ways(lambda x: ops.matmul(x, ops.constant(WEIGHT), True, False), -1, 3, 8, 5, image=(2, 3, 8, 5))

    assert kinds(model) == ["Parameter", "MatMul"]
