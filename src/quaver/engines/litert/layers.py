"""Convolutions, linear layers and matrix products."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from quaver.engines.litert.clamps import emit_clamped
from quaver.engines.litert.flatbuffer import FileTensor, QParams
from quaver.engines.litert.padding import VALID, Window, around, padded, window_of
from quaver.engines.litert.translator import Translation, Translator, Value, as_given, channels_last
from quaver.errors import EngineError
from quaver.graph.nodes import argument, facts, is_dequantize
from quaver.graph.patterns import foldable_batch_norm, two
from quaver.xnnpack.lowering import weight_in_int8


class Parameters(NamedTuple):
    """A layer's weight and bias, ready for the file, and the grid of its result; no grids where it runs in float."""

    weight: Value
    bias: Value
    grid: QParams | None


def grid_of(t: Translator, node: fx.Node) -> QParams | None:
    """The grid of a layer's result; None where it runs in float."""
    return t.grid_of(node) if weight_in_int8(node) is not None else None


def shape_of(node: Any) -> list[int]:
    """The shape that a node gives."""
    return [int(size) for size in node.meta["val"].shape]


def parameters(t: Translator, node: fx.Node, arranged: Callable[[NDArray[Any]], NDArray[Any]], axis: int) -> Parameters:
    """The weight, arranged as LiteRT wants it, its channels at ``axis``; the bias in steps of the sum."""
    grid, weight, name = grid_of(t, node), cast(fx.Node, node.args[1]), f"{t.title(node)}.weight"
    if grid is None:
        values, bias = in_float(t, node)
        return Parameters(t.constant(arranged(values), name=name), t.constant(bias, name=f"{t.title(node)}.bias"), None)
    stored, steps = (t.constants[cast(fx.Node, value)] for value in weight.args[:2])
    whole = t.constant(arranged(stored.numpy()), QParams(steps.float().numpy(), 0, axis), name)
    return Parameters(whole, bias_of(t, node, steps), grid)


def in_float(t: Translator, node: fx.Node) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weight and bias of a layer that runs in float, with the batch norm behind it in them."""
    stored = cast(fx.Node, node.args[1])
    weight = (t.constants[stored] if stored in t.constants else dequantized(t, stored)).float()
    axes, norm = facts(node).weight, foldable_batch_norm(node)
    bias = bias_in_float(t, node)
    if norm is not None:
        factor, shift = factors(t, norm)
        along = [1] * weight.dim()
        along[axes.channel_axis] = -1
        weight, bias = weight * factor.view(along), bias * factor + shift
    return weight.numpy(), bias.numpy()


def bias_in_float(t: Translator, node: fx.Node) -> Tensor:
    """A layer's bias; zeros where it has none, for LiteRT wants one."""
    given = argument(node, "bias")
    return torch.zeros(shape_of(node)[facts(node).weight.output_axis]) if given is None else t.constants[given].float()


def dequantized(t: Translator, weight: fx.Node) -> Tensor:
    """What a stored weight stands for."""
    if not is_dequantize(weight):
        raise EngineError(f"LiteRT: {t.title(weight)!r}: a weight that depends on the input has no form in a .tflite file.")
    args = fx.map_arg(weight.args, t.constants.__getitem__)
    return weight.target(*args)  # type: ignore[operator,no-any-return]


def bias_of(t: Translator, node: fx.Node, steps: Tensor) -> Value:
    """The bias as int32 numbers of steps of the sum, as XNNPACK's arithmetic has it."""
    x: Any = node.args[0]
    sums = steps.float() * float(t.values[x].grid.scale[0])
    whole = (bias_in_float(t, node) * (1.0 / sums)).round()
    return t.constant(whole.numpy().astype(np.int32), QParams(sums.numpy(), 0), f"{t.title(node)}.bias")


def conv2d(t: Translator, node: fx.Node) -> Value:
    """A convolution of images."""
    (_, _, *kernel), grid = shape_of(node.args[1]), grid_of(t, node)
    x = t.ordered(t.operand(node.args[0], grid), channels_last(4))
    window = window_of(node, kernel, x.shape[2:])
    return convolved(t, node, x, window, t.like(node, channels_last(4)))


def conv1d(t: Translator, node: fx.Node) -> Value:
    """A convolution along a line: of an image that is one pixel high."""
    (*_, width), grid = shape_of(node.args[1]), grid_of(t, node)
    line = t.ordered(t.operand(node.args[0], grid), channels_last(3))
    batch, length, channels = line.stored.shape
    x = t.reshaped(line, (batch, 1, length, channels), channels_last(4))
    _, outputs, size = shape_of(node)
    like = Value(FileTensor(-1, (batch, 1, size, outputs), np.dtype(np.float32)), channels_last(4))
    result = convolved(t, node, x, Window.along(node, width, length), like)
    return t.reshaped(result, (batch, size, outputs), channels_last(3))


def convolved(t: Translator, node: fx.Node, x: Value, window: Window, like: Value) -> Value:
    """A convolution; each channel by itself where there are as many groups as channels."""
    (outputs, inputs, *_), groups = shape_of(node.args[1]), argument(node, "groups")
    x, padding = padded(t, x, window)
    options = window.layer_options(padding)
    if groups > 1 and inputs == 1:
        held = parameters(t, node, lambda weight: np.moveaxis(weight, 0, -1).reshape(1, *window.kernel, outputs), 3)
        op, options["depthMultiplier"] = "DEPTHWISE_CONV_2D", outputs // groups
    else:
        held = parameters(t, node, lambda weight: np.moveaxis(weight, 1, -1).reshape(outputs, *window.kernel, inputs), 0)
        op = "CONV_2D"
    return emit_clamped(t, op, [x, held.weight, held.bias], like, node, held.grid, **options)


def conv_transpose2d(t: Translator, node: fx.Node) -> Value:
    """A transposed convolution: without padding, and cut to size behind it where PyTorch has some."""
    if two(argument(node, "dilation")) != [1, 1]:
        raise EngineError(
            f"LiteRT: {t.title(node)!r}: a transposed convolution with dilation has no form in a .tflite file."
        )
    groups = argument(node, "groups")
    held = parameters(t, node, lambda weight: ungrouped(weight, groups).transpose(1, 2, 3, 0), 0)
    x = t.ordered(t.operand(node.args[0], held.grid), channels_last(4))
    kernel, stride = shape_of(node.args[1])[2:], two(argument(node, "stride"))
    cut, wanted = two(argument(node, "padding")), shape_of(node)[2:]
    whole = [(have - 1) * step + width for have, step, width in zip(x.shape[2:], stride, kernel, strict=True)]
    if any(skip + want > have for skip, want, have in zip(cut, wanted, whole, strict=True)):
        raise EngineError(
            f"LiteRT: {t.title(node)!r}: a transposed convolution with more output_padding than padding has no form in a "
            ".tflite file."
        )
    result = spread(t, x, held, stride, whole, t.title(node))
    return cropped(t, result, cut, wanted)


def spread(t: Translator, x: Value, held: Parameters, stride: list[int], whole: list[int], name: str) -> Value:
    """Each pixel times a weight, added up where they come to lie, without padding."""
    shape = (x.shape[0], *whole, held.weight.stored.shape[0])
    like = Value(FileTensor(-1, shape, np.dtype(np.float32)), channels_last(4))
    options = {"padding": VALID, "strideH": stride[0], "strideW": stride[1]}
    operands = [t.integers(list(shape)), held.weight, x, held.bias]
    return t.emit("TRANSPOSE_CONV", operands, like, name, held.grid, **options)


def ungrouped(weight: NDArray[Any], groups: int) -> NDArray[Any]:
    """A transposed convolution's weight (inputs first) with zeros for what other groups read: LiteRT has no groups there."""
    if groups == 1:
        return weight
    inputs, outputs, *kernel = weight.shape
    whole = np.zeros((groups, inputs // groups, groups, outputs, *kernel), weight.dtype)
    for group, part in enumerate(weight.reshape(groups, inputs // groups, outputs, *kernel)):
        whole[group, :, group] = part
    return whole.reshape(inputs, groups * outputs, *kernel)


def col2im(t: Translator, node: fx.Node) -> Value:
    """Patches added up to images (`torch.nn.functional.fold`): each number to its own place of a transposed convolution.

    Channels are images of their own there, so that the weight stays small.
    """
    wanted, kernel, dilation, cut, stride = (
        two(argument(node, name)) for name in ("output_size", "kernel_size", "dilation", "padding", "stride")
    )
    if dilation != [1, 1]:
        raise EngineError(f"LiteRT: {t.title(node)!r}: folding with dilation has no form in a .tflite file.")
    x = t.operand(node.args[0])
    batch, rows, _ = x.shape
    area = kernel[0] * kernel[1]
    counts = [
        (size + 2 * skip - width) // step + 1 for size, skip, width, step in zip(wanted, cut, kernel, stride, strict=True)
    ]
    apart = t.reshaped(t.ordered(x, as_given(3)), (batch * rows // area, area, *counts), as_given(4))
    weight = t.constant(np.eye(area, dtype=np.float32).reshape(1, *kernel, area), name=f"{t.title(node)}.weight")
    held = Parameters(weight, t.constant(np.zeros(1, np.float32)), None)
    whole = [(count - 1) * step + width for count, step, width in zip(counts, stride, kernel, strict=True)]
    spare = [max(skip + size - have, 0) for skip, size, have in zip(cut, wanted, whole, strict=True)]
    images = spread(t, t.ordered(apart, channels_last(4)), held, stride, whole, t.title(node))
    images = cropped(t, around(t, images, [(0, more) for more in spare]), cut, wanted)
    return t.reshaped(images, tuple(shape_of(node)), as_given(4))


def cropped(t: Translator, value: Value, start: list[int], wanted: list[int]) -> Value:
    """A part of images."""
    if wanted == list(value.shape[2:]):
        return value
    batch, *_, channels = value.stored.shape
    begin, end = [0, *start, 0], [batch, *(skip + want for skip, want in zip(start, wanted, strict=True)), channels]
    like = Value(FileTensor(-1, (batch, *wanted, channels), value.stored.dtype), value.order)
    operands = [value, t.integers(begin), t.integers(end), t.integers([1] * 4)]
    return t.emit("STRIDED_SLICE", operands, like, f"{t.name_of(value)}.cropped", value.grid)


def linear(t: Translator, node: fx.Node) -> Value:
    """A linear layer, of the last dimension."""
    held = parameters(t, node, np.asarray, 0)
    x = t.operand(node.args[0], held.grid)
    x = t.ordered(x, as_given(x.rank))
    like = t.like(node, as_given(x.rank))
    operands = [x, held.weight, held.bias]
    return emit_clamped(t, "FULLY_CONNECTED", operands, like, node, held.grid, keepNumDims=x.rank != 2)


def matmul(t: Translator, node: fx.Node) -> Value:
    """A matrix product in float."""
    first, second = (t.operand(value) for value in node.args[:2])
    first, second = (t.ordered(value, as_given(value.rank)) for value in (first, second))
    like = t.like(node, as_given(len(node.meta["val"].shape)))
    return t.emit("BATCH_MATMUL", [first, second], like, t.title(node), adjX=False, adjY=False)


def batch_norm(t: Translator, node: fx.Node) -> Value:
    """A batch norm as what it is once trained: a product and a sum, by constants; its layer may have done it."""
    source = cast(fx.Node, node.args[0])
    if facts(source).is_layer and foldable_batch_norm(source) is node:
        return cast(Value, t.values[source])
    x = t.operand(source)
    along = (1, -1, *[1] * (x.rank - 2))
    operands = [t.ordered(t.constant(values.numpy().reshape(along)), x.order) for values in factors(t, node)]
    product = t.emit("MUL", [x, operands[0]], x, f"{t.title(node)}.scaled")
    return t.emit("ADD", [product, operands[1]], x, t.title(node))


def factors(t: Translator, node: fx.Node) -> tuple[Tensor, Tensor]:
    """What a batch norm multiplies by, and then adds, for each channel."""
    names = ("weight", "bias", "running_mean", "running_var")
    given: list[Any] = [t.constants.get(argument(node, name)) for name in names]
    gamma, beta, mean, variance = given
    factor = torch.rsqrt(variance.float() + argument(node, "eps"))
    factor = factor if gamma is None else factor * gamma.float()
    shift = -mean.float() * factor if beta is None else beta.float() - mean.float() * factor
    return factor, shift


TRANSLATIONS: dict[str, Translation] = {
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv_transpose2d": conv_transpose2d,
    "col2im": col2im,
    "linear": linear,
    **dict.fromkeys(("matmul", "mm", "bmm"), matmul),
    "batch_norm": batch_norm,
}
