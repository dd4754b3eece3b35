"""The rules of TensorRT's documentation on explicit quantization, each a function that says where an ONNX file breaks it.

The pages that docstrings name are NVIDIA's: *Working with Quantized Types*, *Quantization Workflows* and *Explicit
Quantization* (its sections *Quantized Weights*, *ONNX Support*, *TensorRT Processing of Q/DQ Networks* and *Q/DQ
Layer-Placement Recommendations*), *ONNX Opset Guide* and *Working with Dynamic Shapes* of TensorRT's documentation,
`IQuantizeLayer` of its API reference, and *operators.md* of ONNX-TensorRT, its parser. The last two sections of *Explicit
Quantization* were at hand by their figures and as others quote them.
A rule in `REFUSED` is one by which TensorRT does not build an engine, or not the one that
is meant; one in `SLOWER` costs fusions, or tells what a build has to be given.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from quaver.engines.file_rules import BrokenRule
from quaver.errors import StorageError
from quaver.onnx.editing import array_of, made_by, only_reader

OPSETS = range(13, 26)
"""From the first that has a scale per channel to the last that TensorRT 11 reads."""

Broken = Iterator[tuple[ir.Node | None, str]]
Rule = Callable[[ir.Model], Broken]

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_PRODUCTS = (*_LAYERS, "MatMul")
_ON_INTEGERS = ("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear")
_ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "Gelu", "Selu")
_STORED_OTHERWISE = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten")


def broken_rules(file: Path) -> list[BrokenRule]:
    """Where an ONNX file breaks a rule, those first that TensorRT refuses it for."""
    try:
        return broken_in(onnx.load(file))
    except Exception as error:  # protobuf's errors are many, and so are those of what is no model
        raise StorageError(f"{file}: is no ONNX file that can be read: {error}") from error


def broken_in(proto: onnx.ModelProto) -> list[BrokenRule]:
    """`broken_rules` of a model in memory."""
    model = ir.from_proto(proto)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    return [
        BrokenRule(rule.__name__.replace("_", " "), _name(node), message, rule in REFUSED)
        for rule in (*REFUSED, *SLOWER)
        for node, message in rule(model)
    ]


# what TensorRT refuses


def an_opset_that_the_parser_reads(model: ir.Model) -> Broken:
    """*ONNX Opset Guide*, supported versions; a scale per channel is in ONNX since opset 13 (QuantizeLinear)."""
    opset = model.opset_imports.get("", 0)
    if opset not in OPSETS:
        yield None, f"the file has opset {opset}, and takes one of {OPSETS[0]} to {OPSETS[-1]}"


def pairs_and_no_integer_ops(model: ir.Model) -> Broken:
    """*operators.md*: of ONNX's quantization the parser reads QuantizeLinear and DequantizeLinear alone."""
    for node in _nodes(model, *_ON_INTEGERS):
        yield node, f"{node.op_type} is not read; write it as the float op between quantize and dequantize pairs"


def signed_8_bit_integers(model: ir.Model) -> Broken:
    """*Working with Quantized Types*, supported data types: INT8 is signed; *operators.md*, types of DequantizeLinear."""
    for node in _nodes(model, "QuantizeLinear", "DequantizeLinear"):
        zero = _input(node, 2)
        stored = zero if zero is not None else node.inputs[0] if node.op_type == "DequantizeLinear" else None
        dtype = stored.dtype if stored is not None else ir.DataType.UINT8  # ONNX's default
        if dtype not in (ir.DataType.INT8, None):
            yield node, f"its integers are {str(dtype).lower()}, not int8"


def zero_points_of_zero(model: ir.Model) -> Broken:
    """*Working with Quantized Types*, approach: symmetric; `IQuantizeLayer`: zeroPt holds zeros only; *operators.md*."""
    for node in _nodes(model, "QuantizeLinear", "DequantizeLinear"):
        zero = _input(node, 2)
        if zero is None:
            continue
        array = array_of(zero)
        if array is None:
            yield node, "its zero point is no constant"
        elif np.any(array):
            yield node, f"its zero point is {np.ravel(array)[np.flatnonzero(array)[0]]}, not 0"


def constant_positive_scales(model: ir.Model) -> Broken:
    """`IQuantizeLayer`: the scale is known when the engine is built, and all its coefficients are positive."""
    for node in _nodes(model, "QuantizeLinear", "DequantizeLinear"):
        scale = array_of(node.inputs[1])
        if scale is None:
            yield node, "its scale is no constant"
        elif not np.all(np.isfinite(scale) & (scale > 0)):
            yield node, "its scale is not positive everywhere"


def one_scale_per_activation(model: ir.Model) -> Broken:
    """*Explicit Quantization*, placement: activations per tensor, weights per channel; *Quantization Workflows*, scaling."""
    for node in _nodes(model, "QuantizeLinear", "DequantizeLinear"):
        if _scales(node) > 1 and not _is_of_weight(node):
            yield node, f"it has {_scales(node)} scales, and an activation takes one"


def scales_along_output_channels(model: ir.Model) -> Broken:
    """`IQuantizeLayer`, axis: the output channels of a weight, axis 0 of a convolution's and 1 of a deconvolution's."""
    for node in _nodes(model, *_PRODUCTS):
        back, axis = _weight(node)
        shape = back.inputs[0].shape if back is not None and back.inputs[0] is not None else None
        if back is None or shape is None or axis is None or _scales(back) == 1:
            continue
        given = _axis(back) % len(shape)
        if given != axis % len(shape):
            yield node, f"its weight has a scale per entry of axis {given}; output channels are axis {axis % len(shape)}"
        elif _scales(back) != shape[given]:
            yield node, f"its weight has {_scales(back)} scales for {shape[given]} channels"


def pairs_that_agree(model: ir.Model) -> Broken:
    """*Explicit Quantization*, processing of Q/DQ networks: a Q is followed by the DQ that undoes it."""
    for node in _nodes(model, "QuantizeLinear"):
        for reader, _ in node.outputs[0].uses():
            if reader.op_type != "DequantizeLinear":
                yield node, f"{reader.op_type} reads its integers; a DequantizeLinear has to stand between"
            elif not _same_grid(node, reader):
                yield node, f"the DequantizeLinear behind it, {_name(reader)!r}, has another scale"


def no_quantized_bias(model: ir.Model) -> Broken:
    """*Explicit Quantization*, placement: inputs and weights of a layer are quantized; its bias stays float.

    ONNX Runtime's quantizer stores biases as int32 behind a DequantizeLinear, which the parser refuses.
    """
    for node in _nodes(model, *_LAYERS):
        if made_by(_input(node, 2), "DequantizeLinear") is not None:
            yield node, "its bias is quantized; store it as float32"


# what costs fusions, or has to be said


def all_inputs_of_a_layer(model: ir.Model) -> Broken:
    """*Explicit Quantization*, placement recommendations: quantize all inputs of weighted operations."""
    for node in _nodes(model, *_PRODUCTS):
        back, _ = _weight(node)
        whole = [made_by(node.inputs[0], "DequantizeLinear") is not None, back is not None]
        if any(whole) and not all(whole):
            yield node, f"its {'weight' if whole[0] else 'input'} is not quantized, so it runs in float"


def a_scale_per_channel_of_weights(model: ir.Model) -> Broken:
    """*Explicit Quantization*, placement recommendations: weights per channel, activations per tensor."""
    for node in _nodes(model, *_LAYERS):
        back, _ = _weight(node)
        if back is not None and _scales(back) == 1 and _channels(node) != 1:
            yield node, "its weight has one scale for all channels, which is less accurate"


def a_quantized_shortcut(model: ir.Model) -> Broken:
    """*Explicit Quantization*, placement recommendations: quantize the residual input in skip connections.

    An addition is fused with the layer in front of it, and what the other operand is decides what both write. A pair on the
    layer's own output, too, would keep the two apart: NVIDIA's TensorFlow toolkit (*Add Custom QDQ Insertion Case*) calls
    that suboptimal, and its Model Optimizer puts pairs on the residual branch alone (pull request 425).
    """
    for node in _nodes(model, "Add"):
        layers = [value for value in node.inputs if _ends_quantized_layer(value)]
        others = [value for value in node.inputs if value not in layers[:1]]
        if layers and not any(made_by(value, "DequantizeLinear") or array_of(value) is not None for value in others):
            yield node, "what it adds to a quantized layer is not quantized, so both write float"


def all_operands_or_none(model: ir.Model) -> Broken:
    """*Explicit Quantization*, placement recommendations: an op is quantized where all that it reads is."""
    for node in _nodes(model, "Add", "Mul", "Concat"):
        values = [value for value in node.inputs if array_of(value) is None and not _ends_quantized_layer(value)]
        whole = [made_by(value, "DequantizeLinear") is not None for value in values]
        if any(whole) and not all(whole):
            yield node, "some of its inputs are quantized and some are not, so it runs in float"


def one_scale_to_a_concatenation(model: ir.Model) -> Broken:
    """*Explicit Quantization*, processing of Q/DQ networks: pairs move past a concatenation where they are all alike."""
    for node in _nodes(model, "Concat"):
        backs = [back for value in node.inputs if (back := made_by(value, "DequantizeLinear")) is not None]
        if len(backs) == len(node.inputs) and not all(_same_grid(backs[0], back) for back in backs):
            yield node, "its inputs have different scales, so they are rescaled on the way"


def activations_behind_their_layer(model: ir.Model) -> Broken:
    """*Explicit Quantization*, placement recommendations: no pair between a layer and its batch norm or activation."""
    for node in _nodes(model, "BatchNormalization", *_ACTIVATIONS):
        back = made_by(node.inputs[0], "DequantizeLinear")
        rounding = made_by(back.inputs[0], "QuantizeLinear") if back is not None else None
        if rounding is not None and made_by(rounding.inputs[0], *_PRODUCTS) is not None:
            yield node, "a pair stands between it and its layer, so that the two are not fused"


def sizes_to_build_for(model: ir.Model) -> Broken:
    """*Working with Dynamic Shapes*, optimization profiles: free sizes are given a least, a usual and a largest value."""
    for value in model.graph.inputs:
        free = [str(size) for size in value.shape or () if not isinstance(size, int)]
        if free:
            yield None, f"input {value.name!r} has free sizes ({', '.join(free)}): build with an optimization profile"


REFUSED: tuple[Rule, ...] = (
    an_opset_that_the_parser_reads,
    pairs_and_no_integer_ops,
    signed_8_bit_integers,
    zero_points_of_zero,
    constant_positive_scales,
    one_scale_per_activation,
    scales_along_output_channels,
    pairs_that_agree,
    no_quantized_bias,
)
SLOWER: tuple[Rule, ...] = (
    all_inputs_of_a_layer,
    a_scale_per_channel_of_weights,
    a_quantized_shortcut,
    all_operands_or_none,
    one_scale_to_a_concatenation,
    activations_behind_their_layer,
    sizes_to_build_for,
)


# what they ask


def _nodes(model: ir.Model, *op_types: str) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type in op_types]


def _name(node: ir.Node | None) -> str:
    return "" if node is None else str(node.name or node.outputs[0].name)


def _input(node: ir.Node, place: int) -> ir.Value | None:
    """An input that a node may do without."""
    return node.inputs[place] if place < len(node.inputs) else None


def _scales(node: ir.Node) -> int:
    scale = array_of(node.inputs[1])
    return 1 if scale is None else int(np.size(scale))


def _axis(node: ir.Node) -> int:
    return node.attributes["axis"].as_int() if "axis" in node.attributes else 1


def _same_grid(first: ir.Node, other: ir.Node) -> bool:
    """Whether two nodes have the same scale, along the same axis if it is one per channel."""
    scales: list[Any] = [array_of(node.inputs[1]) for node in (first, other)]
    if any(scale is None for scale in scales):
        return first.inputs[1] is other.inputs[1]
    return np.array_equal(np.ravel(scales[0]), np.ravel(scales[1])) and (_scales(first) == 1 or _axis(first) == _axis(other))


def _is_of_weight(node: ir.Node) -> bool:
    """Whether a quantize or dequantize node reads a constant, or the integers of one."""
    rounding = made_by(node.inputs[0], "QuantizeLinear")
    return array_of(rounding.inputs[0] if rounding is not None else node.inputs[0]) is not None


def _weight(node: ir.Node) -> tuple[ir.Node | None, int | None]:
    """The dequantize node of a product's second operand, and the axis of its output channels; no axis if not known."""
    value, turned = node.inputs[1], False
    while (moved := made_by(value, *_STORED_OTHERWISE)) is not None:
        if moved.op_type not in ("Transpose", "Identity"):
            return made_by(_source(moved), "DequantizeLinear"), None
        turned ^= moved.op_type == "Transpose"
        value = moved.inputs[0]
    back = made_by(value, "DequantizeLinear")
    if node.op_type in ("Conv", "ConvTranspose"):
        return back, None if turned else 0 if node.op_type == "Conv" else 1
    if node.op_type == "Gemm" and "transB" in node.attributes and node.attributes["transB"].as_int():
        turned = not turned
    return back, -2 if turned else -1


def _source(node: ir.Node) -> ir.Value | None:
    """What a chain of nodes that only store a tensor otherwise begins with."""
    value = node.inputs[0]
    while (moved := made_by(value, *_STORED_OTHERWISE)) is not None:
        value = moved.inputs[0]
    return value


def _channels(node: ir.Node) -> int | None:
    """How many output channels a layer has, if that is known."""
    back, axis = _weight(node)
    shape = back.inputs[0].shape if back is not None and back.inputs[0] is not None else None
    size = shape[axis] if shape is not None and axis is not None else None
    return size if isinstance(size, int) else None


def _ends_quantized_layer(value: ir.Value | None) -> bool:
    """Whether a value comes out of a quantized layer, its activation included, and nobody else reads it."""
    while value is not None and only_reader(value) is not None and (node := made_by(value, *_ACTIVATIONS)) is not None:
        value = node.inputs[0]
    layer = made_by(value, *_PRODUCTS)
    return value is not None and only_reader(value) is not None and layer is not None and _weight(layer)[0] is not None
