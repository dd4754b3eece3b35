"""Signed tensors in OpenVINO's files: written so that processors which take signed integers round as all others do."""

import pytest

from exact_nets import NETS, fresh, frozen
from quaver.engines.openvino.runner import read
from quaver.export import export
from quaver.runtime.artefact import provenance

pytestmark = pytest.mark.slow

CONVOLUTIONS = ("Convolution", "GroupConvolution")


@pytest.fixture(scope="module", params=["Signed", "Moved", "Residuals"])
def model(request, tmp_path_factory):
    assert request.param in NETS
    return read(export(frozen(fresh(request.param)), tmp_path_factory.mktemp("file")))


def readers(op):
    return [reader.get_node() for output in op.outputs() for reader in output.get_target_inputs()]


def is_signed(rounding):
    return rounding.input_value(3).get_node().data.min() < 0


def test_no_convolution_reads_a_tensor_that_is_rounded_signed(model):
    rounding = [op for op in model.get_ops() if op.get_type_name() == "FakeQuantize"]
    signed = [op for op in rounding if is_signed(op)]

    assert not [op for op in signed if any(one.get_type_name() in CONVOLUTIONS for one in readers(op))]


def test_what_is_rounded_from_zero_is_128_steps_less_again(model):
    shifted = [
        (op, one)
        for op in model.get_ops()
        if op.get_type_name() == "FakeQuantize"
        for one in readers(op)
        if one.get_type_name() == "Subtract"
    ]

    assert shifted  # the input, at least
    for rounding, less in shifted:
        low, high = (rounding.input_value(place).get_node().data for place in (3, 4))
        assert (low == 0).all()
        assert (less.input_value(1).get_node().data * 255 == high * 128).all()


def test_without_same_on_amx_the_engine_chooses(tmp_path):
    file = export(frozen(fresh("Signed")), tmp_path, same_on_amx=False)

    rounding = [op for op in read(file).get_ops() if op.get_type_name() == "FakeQuantize"]
    assert any(is_signed(op) and any(one.get_type_name() in CONVOLUTIONS for one in readers(op)) for op in rounding)
    assert provenance(file)["same_on_amx"] is False
