"""Every rule of TensorRT's documentation, on a file of a few nodes that keeps to all and on one that breaks it."""

import onnx_ir as ir
import pytest

from onnx_models import parsed
from quaver.engines import ENGINES
from quaver.engines.tensorrt import rules
from quaver.engines.tensorrt.rules import broken_in
from quaver.errors import StorageError

CONSTANTS = """float scale = {0.1}, float other = {0.2}, int8 zero = {0}, float[2] bias = {1, 2}, int8[2] many = {0, 0},
    int8[2,2,1,1] weight = {1, 2, 3, 4}, int8[2,2] matrix = {1, 2, 3, 4}, float[2] steps = {0.5, 0.25}"""
RESIDUAL = """
    xq = QuantizeLinear(x, scale, zero)
    xr = DequantizeLinear(xq, scale, zero)
    w = DequantizeLinear<axis = 0>(weight, steps, many)
    sums = Conv(xr, w, bias)
    total = Add(sums, xr)
    low = Relu(total)
    lq = QuantizeLinear(low, other, zero)
    y = DequantizeLinear(lq, other, zero)
"""
PAIR = "tq = QuantizeLinear(total, other, zero) t = DequantizeLinear(tq, other, zero)"


def net(body=RESIDUAL, constants=CONSTANTS, size="2"):
    shape = f"float[{size},2,4,4]"
    return parsed(f"net ({shape} x) => ({shape} y) <{constants}> {{ {body} }}")


def broken(model):
    """The rules that are broken, and where; the names of nodes are those of what they give."""
    return {(each.rule, each.node) for each in broken_in(ir.to_proto(model))}


def changed(*changes, constants=CONSTANTS):
    body = RESIDUAL
    for old, new in changes:
        assert old in body or old in constants
        body, constants = body.replace(old, new), constants.replace(old, new)
    return net(body, constants)


def test_a_file_in_tensorrts_form_breaks_no_rule():
    assert broken(net()) == set()


BROKEN = {
    "signed 8 bit integers": (("int8 zero = {0}", "uint8 zero = {0}"),),
    "zero points of zero": (("int8 zero = {0}", "int8 zero = {-128}"),),
    "constant positive scales": (("other = {0.2}", "other = {-0.2}"),),
    "one scale per activation": (("DequantizeLinear(lq, other", "DequantizeLinear(lq, steps"),),
    "scales along output channels": (("axis = 0", "axis = 1"),),
    "pairs that agree": (("DequantizeLinear(lq, other", "DequantizeLinear(lq, scale"),),
    "no quantized bias": (
        ("float[2] bias = {1, 2}", "int8[2] whole = {1, 2}"),
        ("sums = Conv", "bias = DequantizeLinear(whole, scale, zero) sums = Conv"),
    ),
    "pairs and no integer ops": (("sums = Conv(xr, w, bias)", "i = ConvInteger(xq, weight) sums = Cast<to = 1>(i)"),),
    "all inputs of a layer": (("Conv(xr, w", "Conv(x, w"),),
    "a scale per channel of weights": (("<axis = 0>(weight, steps, many)", "(weight, scale, zero)"),),
    "a quantized shortcut": (("Add(sums, xr)", "Add(sums, x)"),),
    "all operands or none": (("low = Relu(total)", "low = Mul(x, xr)"),),
    "one scale to a concatenation": (
        ("low = Relu(total)", f"{PAIR} low = Concat<axis = 0>(xr, t)"),
    ),
    "activations behind their layer": (
        ("total = Add(sums, xr)", f"{PAIR.replace('total', 'sums')} total = Identity(t)"),
        ("Relu(total)", "Relu(t)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_a_file_that_breaks_a_rule_is_told(rule):
    assert rule in {name for name, _ in broken(changed(*BROKEN[rule]))}


def test_every_rule_has_a_file_that_breaks_it():
    names = {rule.__name__.replace("_", " ") for rule in (*rules.REFUSED, *rules.SLOWER)}

    assert names == {*BROKEN, "an opset that the parser reads", "sizes to build for"}


def test_every_rule_says_where_it_stands_in_the_documentation():
    for rule in (*rules.REFUSED, *rules.SLOWER):
        assert rule.__doc__.startswith(("*", "`IQuantizeLayer`")), rule.__name__


def test_the_node_is_named():
    assert broken(changed(*BROKEN["zero points of zero"])) >= {("zero points of zero", "xq"), ("zero points of zero", "lq")}


def test_an_opset_without_scales_per_channel_is_refused():
    model = net()
    model.opset_imports[""] = 12

    assert ("an opset that the parser reads", "") in broken(model)


def test_free_sizes_are_said_and_not_refused():
    (said,) = broken_in(ir.to_proto(net(size="N")))

    assert str(said) == "input 'x' has free sizes (N): build with an optimization profile (sizes to build for)"
    assert not said.fatal


def test_a_zero_point_that_is_computed_is_refused():
    assert ("zero points of zero", "lq") in broken(
        changed(("lq = QuantizeLinear(low, other, zero)", "z = Cast<to = 3>(other) lq = QuantizeLinear(low, other, z)"))
    )


def test_without_a_zero_point_onnx_means_uint8():
    assert ("signed 8 bit integers", "lq") in broken(
        changed(("QuantizeLinear(low, other, zero)", "QuantizeLinear(low, other)"))
    )


@pytest.mark.parametrize(
    ("op", "axis", "fits"),
    [
        ("ConvTranspose(xr, w)", 1, True),
        ("ConvTranspose(xr, w)", 0, False),
        ("MatMul(flat, m)", 1, True),
        ("MatMul(flat, m)", 0, False),
        ("Gemm<transB = 1>(flat, m)", 0, True),
        ("Gemm<transB = 1>(flat, m)", 1, False),
        ("MatMul(flat, turned)", 0, True),
        ("MatMul(flat, turned)", 1, False),
    ],
)
def test_output_channels_are_another_axis_of_each_kind_of_weight(op, axis, fits):
    model = net(
        f"""
        xq = QuantizeLinear(x, scale, zero)
        xr = DequantizeLinear(xq, scale, zero)
        w = DequantizeLinear<axis = {axis}>(weight, steps, many)
        m = DequantizeLinear<axis = {axis}>(matrix, steps, many)
        turned = Transpose<perm = [1, 0]>(m)
        flat = Flatten(xr)
        y = {op}
        """
    )

    assert fits == ("scales along output channels" not in {rule for rule, _ in broken(model)})


def test_a_file_that_is_none_is_said(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"nothing of the kind")

    with pytest.raises(StorageError, match="is no ONNX file that can be read"):
        ENGINES["tensorrt"].broken_rules(tmp_path / "model.onnx")
