"""Every rule of TensorRT's documentation, on a file of a few nodes that keeps to all and on one that breaks it."""

import onnx_ir as ir
import pytest

from onnx_models import parsed
from quaver.engines import ENGINES
from quaver.engines.tensorrt import rules
from quaver.engines.tensorrt.rules import broken_in
from quaver.errors import StorageError

CONSTANTS = """float scale = {0.1}, float other = {0.2}, int8 zero = {0}, float[2] bias = {1, 2}, int8[2] many = {0, 0},
    int8[2,2,1,1] weight = {1, 2, 3, 4}, int8[2,2] matrix = {1, 2, 3, 4}, float[2] steps = {0.5, 0.25},
    int64[2] shape = {2, 2}"""
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


FATAL = set(list(BROKEN)[:8])  # what TensorRT builds no engine from; the others cost fusions


@pytest.mark.parametrize("rule", BROKEN)
def test_a_file_that_breaks_a_rule_is_told_and_whether_it_is_refused(rule):
    found = {each.rule: each.fatal for each in broken_in(ir.to_proto(changed(*BROKEN[rule])))}

    assert found.get(rule) == (rule in FATAL)


FURTHER = [
    ("pairs and no integer ops", "sums", ("sums = Conv(xr, w, bias)", "sums = MatMulInteger(xq, weight)")),
    ("pairs and no integer ops", "sums", ("Conv(xr, w, bias)", "QLinearConv(xq, scale, zero, weight, scale, zero, scale)")),
    ("pairs and no integer ops", "sums",
     ("Conv(xr, w, bias)", "QLinearMatMul(xq, scale, zero, matrix, scale, zero, scale)")),
    ("pairs and no integer ops", "low", ("low = Relu(total)", "low, s, z = DynamicQuantizeLinear(total)")),
    ("signed 8 bit integers", "w", ("int8[2,2,1,1] weight", "uint8[2,2,1,1] weight"),
     ("(weight, steps, many)", "(weight, steps)")),
    ("constant positive scales", "lq", ("other = {0.2}", "other = {0}")),
    ("constant positive scales", "lq",
     ("low = Relu(total)", "low = Relu(total) far = Exp(total)"), ("(low, other", "(low, far")),
    ("constant positive scales", "lq", ("other = {0.2}", "other = {inf}")),
    ("scales along output channels", "sums",
     ("[2] steps = {0.5, 0.25}", "[3] steps = {1, 2, 3}"), ("[2] many = {0", "[3] many = {0, 0")),
    ("pairs that agree", "lq", ("y = DequantizeLinear(lq, other, zero)", "y = Cast<to = 1>(lq)")),
    ("pairs that agree", "lq", ("low = Relu(total)", "low = Relu(total) a = Exp(low) b = Exp(low)"),
     ("(low, other", "(low, a"), ("(lq, other", "(lq, b")),
    ("pairs that agree", "vq", ("w = Dequant", "v = Identity(x) vq = QuantizeLinear<axis = 0>(v, steps, many) "
     "vr = DequantizeLinear<axis = 1>(vq, steps, many) w = Dequant")),
    ("all inputs of a layer", "sums", ("sums = Conv(xr, w", "v = Cast<to = 1>(weight) sums = Conv(xr, v")),
    ("a quantized shortcut", "total", ("total = Add(sums, xr)", "high = Relu(sums) total = Add(high, x)")),
]  # fmt: skip
"""Rules that are broken in another way: the rule, the node that is named, and what is another in the file."""


@pytest.mark.parametrize(("rule", "node", "changes"), [(rule, node, changes) for rule, node, *changes in FURTHER])
def test_other_ways_to_break_a_rule_are_told(rule, node, changes):
    assert (rule, node) in broken(changed(*changes))


KEPT = [
    ("signed 8 bit integers", ("(weight, steps, many)", "(weight, steps)")),
    ("a scale per channel of weights", ("int8[2,2,1,1] weight = {1, 2, 3, 4}", "int8[1,2,1,1] weight = {1, 2}"),
     ("<axis = 0>(weight, steps, many)", "(weight, scale, zero)")),
    ("a quantized shortcut", ("Add(sums, xr)", "Add(sums, bias)")),
    ("a quantized shortcut", ("Add(sums, xr)", "Add(x, x)")),
    ("a quantized shortcut", ("Add(sums, xr)", "Add(sums, x)"), ("Relu(total)", "Add(total, sums)")),
    ("a quantized shortcut",
     ("sums = Conv(xr, w, bias)", "v = Cast<to = 1>(weight) sums = Conv(x, v)"), ("Add(sums, xr)", "Add(sums, x)")),
    ("all operands or none", ("low = Relu(total)", "low = Mul(xr, bias)")),
    ("all operands or none", ("low = Relu(total)", "half = Constant<value = float[1] {0.5}>() low = Mul(xr, half)")),
    ("activations behind their layer", ("Relu(total)", "Relu(xr)")),
    ("one scale per activation", ("w = DequantizeLinear<axis = 0>(weight, steps, many)",
     "v = Constant<value = float[2,2,1,1] {1, 2, 3, 4}>() vq = QuantizeLinear<axis = 0>(v, steps, many) "
     "w = DequantizeLinear<axis = 0>(vq, steps, many)")),
    ("scales along output channels", ("sums = Conv(xr, w, bias)", "v = Reshape(w, shape) sums = MatMul(xr, v)")),
    ("all inputs of a layer", ("sums = Conv(xr, w, bias)", "t = Transpose(w) v = Reshape(t, shape) sums = MatMul(xr, v)")),
]  # fmt: skip
"""Files that come near to breaking a rule and do not."""


@pytest.mark.parametrize(("rule", "changes"), [(rule, changes) for rule, *changes in KEPT])
def test_what_only_looks_like_it_breaks_no_rule(rule, changes):
    assert rule not in {name for name, _ in broken(changed(*changes))}


@pytest.mark.parametrize(
    ("old", "new", "words"), [("Conv(xr, w", "Conv(x, w", "its input is not"), ("w, bias", "v, bias", "its weight is not")]
)
def test_what_is_not_quantized_of_a_layer_is_said(old, new, words):
    model = changed((old, new), ("sums = ", "v = Cast<to = 1>(weight) sums = "))

    assert any(words in str(each) for each in broken_in(ir.to_proto(model)))


def test_every_rule_has_a_file_that_breaks_it():
    names = {rule.__name__.replace("_", " ") for rule in (*rules.REFUSED, *rules.SLOWER)}

    assert names == {*BROKEN, "an opset that the parser reads", "sizes to build for"}


def test_every_rule_says_where_it_stands_in_the_documentation():
    for rule in (*rules.REFUSED, *rules.SLOWER):
        assert rule.__doc__.startswith(("*", "`IQuantizeLayer`")), rule.__name__


def test_the_node_is_named():
    assert broken(changed(*BROKEN["zero points of zero"])) >= {("zero points of zero", "xq"), ("zero points of zero", "lq")}


@pytest.mark.parametrize("opset", [12, 26])
def test_an_opset_without_scales_per_channel_or_newer_than_the_parser_is_refused(opset):
    model = net()
    model.opset_imports[""] = opset

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
