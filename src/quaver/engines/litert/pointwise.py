"""Sums, products and activations."""

from typing import Any

import numpy as np
from torch import fx

from quaver.engines.litert.clamps import clamp, emit_clamped
from quaver.engines.litert.flatbuffer import FileTensor, QParams
from quaver.engines.litert.translator import Translation, Translator, Value, as_given, file_dtype, size
from quaver.graph.nodes import argument, clamp_bounds


def elementwise(op: str, on_integers: bool = False) -> Translation:
    """An op of two tensors, or of a tensor and a number; on integers if the op can and both are."""

    def translation(t: Translator, node: fx.Node) -> Value:
        alpha = argument(node, "alpha", 1) if op in ("ADD", "SUB") else 1
        integers = on_integers and alpha == 1 and all(value in t.values for value in node.args[:2])
        grid = t.grid_of(node) if integers else None
        dtype = file_dtype(node.meta["val"].dtype)
        first, second = (t.operand(value, grid) for value in node.args[:2])
        if grid is None:
            first, second = (as_dtype(t, value, dtype) for value in (first, second))
        if alpha != 1:
            second = t.emit("MUL", [second, t.constant(np.array(alpha, dtype))], second, f"{t.title(node)}.alpha")
        return joined(t, op, node, first, second, grid, dtype)

    return translation


def joined(
    t: Translator,
    op: str,
    node: fx.Node,
    first: Value,
    second: Value,
    grid: QParams | None = None,
    gives: Any = np.float32,
) -> Value:
    """An op of two tensors of one rank and order; the smaller one is repeated."""
    rank = max(first.rank, second.rank)
    main = max((first, second), key=lambda value: (value.rank, size(value.shape)))
    first, second = (t.ordered(of_rank(t, value, rank), main.order) for value in (first, second))
    shape = np.broadcast_shapes(first.stored.shape, second.stored.shape)
    like = Value(FileTensor(-1, shape, np.dtype(gives)), main.order)
    return emit_clamped(t, op, [first, second], like, node, grid)


def as_dtype(t: Translator, value: Value, dtype: np.dtype[Any]) -> Value:
    """A tensor's numbers in another type: LiteRT's ops take operands of one."""
    if value.stored.dtype == dtype:
        return value
    if value.array is not None:
        return Value(t.constant(value.array.astype(dtype)).stored, value.order, value.array.astype(dtype))
    like = Value(FileTensor(-1, value.stored.shape, dtype), value.order)
    return t.emit("CAST", [value], like, f"{t.name_of(value)}.{dtype.name}")


def of_rank(t: Translator, value: Value, rank: int) -> Value:
    """A tensor with dimensions of size 1 in front."""
    if value.rank == rank:
        return value
    more = rank - value.rank
    if value.array is not None:
        plain = t.ordered(value, as_given(value.rank))
        assert plain.array is not None
        return t.constant(plain.array.reshape([1] * more + list(plain.array.shape)))
    order = (*range(more), *(dim + more for dim in value.order))
    return t.reshaped(value, (*[1] * more, *value.stored.shape), order)


def unary(op: str, **options: Any) -> Translation:
    """An op of one tensor, in float."""

    def translation(t: Translator, node: fx.Node) -> Value:
        x = t.operand(node.args[0])
        return t.emit(op, [x], x, t.title(node), **options)

    return translation


def with_number(t: Translator, op: str, x: Value, number: float, name: str) -> Value:
    """An op of a tensor and a number."""
    return t.emit(op, [x, t.constant(np.array(number, np.float32))], x, name)


def hardsigmoid(t: Translator, node: fx.Node) -> Value:
    """``(x + 3) / 6`` between 0 and 1."""
    x, name = t.operand(node.args[0]), t.title(node)
    shifted = with_number(t, "ADD", x, 3, f"{name}.shifted")
    return with_number(t, "DIV", t.emit("RELU6", [shifted], x, f"{name}.clamped"), 6, name)


def silu(t: Translator, node: fx.Node) -> Value:
    """``x · sigmoid(x)``."""
    x = t.operand(node.args[0])
    return t.emit("MUL", [x, t.emit("LOGISTIC", [x], x, f"{t.title(node)}.sigmoid")], x, t.title(node))


def leaky_relu(t: Translator, node: fx.Node) -> Value:
    """``x``, or a share of it where it is negative."""
    x = t.operand(node.args[0])
    return t.emit("LEAKY_RELU", [x], x, t.title(node), alpha=float(argument(node, "negative_slope")))


def gelu(t: Translator, node: fx.Node) -> Value:
    """The Gaussian error's linear unit."""
    x = t.operand(node.args[0])
    return t.emit("GELU", [x], x, t.title(node), approximate=argument(node, "approximate") == "tanh")


def elu(t: Translator, node: fx.Node) -> Value:
    """``x``, or ``exp(x) - 1`` where it is negative; SELU and CELU are this with factors inside and around."""
    x, name = t.operand(node.args[0]), t.title(node)
    alpha, scale, within = (argument(node, factor) for factor in ("alpha", "scale", "input_scale"))
    if alpha == scale == within == 1:
        return t.emit("ELU", [x], x, name)
    negative = with_number(t, "MUL", with_number(t, "MINIMUM", x, 0, f"{name}.negative"), within, f"{name}.within")
    bent = with_number(t, "MUL", t.emit("ELU", [negative], x, f"{name}.bent"), alpha, f"{name}.alpha")
    return with_number(t, "MUL", t.emit("ADD", [t.emit("RELU", [x], x, f"{name}.positive"), bent], x, name), scale, name)


def mish(t: Translator, node: fx.Node) -> Value:
    """``x · tanh(log(1 + exp(x)))``: with e = exp(x), x · (e² + 2e) / (e² + 2e + 2), x not beyond 20."""
    x, name = t.operand(node.args[0]), t.title(node)
    e = t.emit("EXP", [with_number(t, "MINIMUM", x, 20, f"{name}.limited")], x, f"{name}.exp")
    both = t.emit("MUL", [e, with_number(t, "ADD", e, 2, f"{name}.shifted")], x, f"{name}.product")
    share = t.emit("DIV", [both, with_number(t, "ADD", both, 2, f"{name}.divisor")], x, f"{name}.share")
    return t.emit("MUL", [x, share], x, name)


def prelu(t: Translator, node: fx.Node) -> Value:
    """``x``, or a learned share of it where it is negative."""
    x = t.operand(node.args[0])
    slope = t.array(node.args[1]).astype(np.float32)
    along = t.constant(slope.reshape([1, -1, *[1] * (x.rank - 2)]))
    return t.emit("PRELU", [x, t.ordered(along, x.order)], x, t.title(node))


def softmax(t: Translator, node: fx.Node) -> Value:
    """Shares along a dimension, which LiteRT wants last."""
    x, dim = t.operand(node.args[0]), argument(node, "dim")
    dim = dim % x.rank
    if x.order[-1] != dim:
        x = t.ordered(x, (*(other for other in range(x.rank) if other != dim), dim))
    return t.emit("SOFTMAX", [x], x, t.title(node), beta=1.0)


def reciprocal(t: Translator, node: fx.Node) -> Value:
    """``1 / x``."""
    x = t.operand(node.args[0])
    return t.emit("DIV", [t.constant(np.array(1, np.float32)), x], x, t.title(node))


def log1p(t: Translator, node: fx.Node) -> Value:
    """``log(1 + x)``."""
    x, name = t.operand(node.args[0]), t.title(node)
    return t.emit("LOG", [with_number(t, "ADD", x, 1, f"{name}.shifted")], x, name)


def expm1(t: Translator, node: fx.Node) -> Value:
    """``exp(x) - 1``."""
    x, name = t.operand(node.args[0]), t.title(node)
    return with_number(t, "SUB", t.emit("EXP", [x], x, f"{name}.exp"), 1, name)


def bounded(t: Translator, node: fx.Node) -> Value:
    """Between bounds, which may be tensors."""
    if clamp_bounds(node) is not None:
        return clamp(t, node)
    x = t.operand(node.args[0])
    for op, bound in (("MAXIMUM", argument(node, "min")), ("MINIMUM", argument(node, "max"))):
        x = x if bound is None else joined(t, op, node, x, t.operand(bound))
    return x


def power(t: Translator, node: fx.Node) -> Value:
    """``x`` to a number's power."""
    x, exponent = t.operand(node.args[0]), node.args[1]
    if exponent == 2:
        return t.emit("MUL", [x, x], x, t.title(node))
    return joined(t, "POW", node, x, t.operand(exponent))


def normalized(t: Translator, node: fx.Node, x: Value, axes: list[int], eps: float) -> Value:
    """A tensor less its mean along axes (as it lies), by its deviation there."""
    name = t.title(node)
    shape = tuple(1 if place in axes else extent for place, extent in enumerate(x.stored.shape))
    small = Value(FileTensor(-1, shape, x.stored.dtype), x.order)
    along = t.integers(axes)
    mean = t.emit("MEAN", [x, along], small, f"{name}.mean", keepDims=True)
    centred = t.emit("SUB", [x, mean], x, f"{name}.centred")
    squares = t.emit("MUL", [centred, centred], x, f"{name}.squares")
    variance = t.emit("MEAN", [squares, along], small, f"{name}.variance", keepDims=True)
    factor = t.emit("RSQRT", [with_number(t, "ADD", variance, eps, f"{name}.shifted")], small, f"{name}.factor")
    return t.emit("MUL", [centred, factor], x, f"{name}.normalized")


def layer_norm(t: Translator, node: fx.Node) -> Value:
    """A norm over the last dimensions."""
    x, dims = t.operand(node.args[0]), len(argument(node, "normalized_shape"))
    axes = sorted(x.place(-1 - dim) for dim in range(dims))
    result = normalized(t, node, x, axes, argument(node, "eps"))
    for op, parameter in (("MUL", argument(node, "weight")), ("ADD", argument(node, "bias"))):
        if parameter is not None:
            result = joined(t, op, node, result, t.operand(parameter))
    return result


def group_norm(t: Translator, node: fx.Node) -> Value:
    """A norm over groups of channels."""
    x, count = t.operand(node.args[0]), argument(node, "num_groups")
    plain = t.ordered(x, as_given(x.rank))
    apart = t.reshaped(plain, (x.shape[0], count, size(x.shape[1:]) // count), as_given(3))
    result = normalized(t, node, apart, [2], argument(node, "eps"))
    result = t.reshaped(result, plain.stored.shape, plain.order)
    for op, parameter in (("MUL", argument(node, "weight")), ("ADD", argument(node, "bias"))):
        if parameter is not None:
            along = t.array(parameter).astype(np.float32).reshape([1, -1, *[1] * (x.rank - 2)])
            result = joined(t, op, node, result, t.constant(along))
    return result


TRANSLATIONS: dict[str, Translation] = {
    "add": elementwise("ADD", on_integers=True),
    "sub": elementwise("SUB", on_integers=True),
    "mul": elementwise("MUL", on_integers=True),
    "div": elementwise("DIV"),
    "maximum": elementwise("MAXIMUM"),
    "minimum": elementwise("MINIMUM"),
    "hardswish": unary("HARD_SWISH"),
    "hardsigmoid": hardsigmoid,
    "sigmoid": unary("LOGISTIC"),
    "silu": silu,
    "leaky_relu": leaky_relu,
    "gelu": gelu,
    "elu": elu,
    "tanh": unary("TANH"),
    "mish": mish,
    "prelu": prelu,
    **dict.fromkeys(("softmax", "_softmax"), softmax),
    "exp": unary("EXP"),
    "log": unary("LOG"),
    "sqrt": unary("SQRT"),
    "rsqrt": unary("RSQRT"),
    "abs": unary("ABS"),
    "neg": unary("NEG"),
    "square": unary("SQUARE"),
    "reciprocal": reciprocal,
    "log1p": log1p,
    "expm1": expm1,
    "clamp": bounded,
    "remainder": elementwise("FLOOR_MOD"),
    "floor": unary("FLOOR"),
    "ceil": unary("CEIL"),
    "round": unary("ROUND"),
    "sign": unary("SIGN"),
    "sin": unary("SIN"),
    "cos": unary("COS"),
    "pow": power,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
}
