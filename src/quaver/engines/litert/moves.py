"""Ops that only move values: on integers wherever they are given some."""

from typing import Any

import numpy as np
from torch import fx

from quaver.engines.litert.flatbuffer import FileTensor
from quaver.engines.litert.translator import (
    Order,
    Translation,
    Translator,
    Value,
    as_given,
    channels_last,
    file_dtype,
    lies_alike,
    size,
)
from quaver.errors import EngineError
from quaver.graph.nodes import argument

REFLECT = 0
FINITE = (np.finfo(np.float32).min, np.finfo(np.float32).max)


def moved(t: Translator, argument: Any) -> Value:
    """What a move reads: integers, if they are."""
    value: Value | None = t.values.get(argument)
    return t.operand(argument) if value is None else value


def on_one_grid(t: Translator, arguments: Any) -> list[Value]:
    """What a move reads that puts tensors together: integers, if all are on one grid."""
    values = [moved(t, argument) for argument in arguments]
    return values if len({value.grid for value in values}) == 1 else [t.as_float(value) for value in values]


def same(t: Translator, node: fx.Node) -> Value:
    """What changes nothing."""
    return moved(t, node.args[0])


def reshape(t: Translator, node: fx.Node) -> Value:
    """Another shape: as the tensor lies where that can be, else in PyTorch's order."""
    x, shape = moved(t, node.args[0]), tuple(int(extent) for extent in node.meta["val"].shape)
    order = order_behind(x, shape)
    if order is None:
        plain, order = as_given(x.rank), as_given(len(shape))
        x = x if lies_alike(x, plain) else t.ordered(x, plain)
    return t.reshaped(x, tuple(shape[dim] for dim in order), order)


def order_behind(x: Value, shape: tuple[int, ...]) -> Order | None:
    """The order in which a tensor lies as it is when its dimensions are split and joined; None where it does not so.

    >>> order_behind(Value(FileTensor(0, (1, 4, 4, 6), np.dtype("int8")), (0, 2, 3, 1)), (1, 2, 3, 4, 4))
    (0, 3, 4, 1, 2)
    """
    behind: list[int] = []
    sources = {dim: group for group in groups(x.shape, shape) for dim in group[0]}
    waiting = list(x.order)
    while waiting:
        before, after = sources[waiting[0]]
        if waiting[: len(before)] != before:
            return None
        waiting = waiting[len(before) :]
        behind += after
    return tuple(behind)


def groups(have: tuple[int, ...], want: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of dimensions of one shape that hold as many numbers as runs of another.

    >>> groups((1, 6, 4, 4), (1, 2, 3, 16))
    [([0], [0]), ([1], [1, 2]), ([2, 3], [3])]
    """
    runs: list[tuple[list[int], list[int]]] = []
    first = second = 0
    while first < len(have) or second < len(want):
        left, right = [first][: len(have) - first], [second][: len(want) - second]
        first, second = first + len(left), second + len(right)
        while (a := size([have[dim] for dim in left])) != (b := size([want[dim] for dim in right])):
            if a < b:
                left.append(first)
                first += 1
            else:
                right.append(second)
                second += 1
        if left and right:
            runs.append((left, right))
        elif runs:  # sizes of 1 at the end
            runs[-1] = (runs[-1][0] + left, runs[-1][1] + right)
    return runs


def permute(t: Translator, node: fx.Node) -> Value:
    """Dimensions by other names: nothing moves until somebody needs it."""
    x, dims = moved(t, node.args[0]), permutation(node)
    return Value(x.stored, tuple(dims.index(dim) for dim in x.order), x.array)


def permutation(node: fx.Node) -> list[int]:
    """Which dimension comes to each place."""
    rank = len(node.meta["val"].shape)
    if (dims := argument(node, "dims")) is not None:
        return [dim % rank for dim in dims]
    swapped = list(range(rank))
    first, second = (argument(node, name, default) % rank for name, default in (("dim0", 0), ("dim1", 1)))
    swapped[first], swapped[second] = second, first
    return swapped


def concat(t: Translator, node: fx.Node) -> Value:
    """Tensors one behind the other: integers where all have one grid."""
    values, dim = on_one_grid(t, node.args[0]), argument(node, "dim")
    first = max(values, key=lambda value: size(value.shape))
    values = [t.ordered(value, first.order) for value in values]
    like = t.like(node, first.order)
    return t.emit("CONCATENATION", values, like, t.title(node), first.grid, axis=first.place(dim))


def stack(t: Translator, node: fx.Node) -> Value:
    """Tensors beside each other in a dimension of their own."""
    shape = tuple(int(extent) for extent in node.meta["val"].shape)
    dim = argument(node, "dim") % len(shape)
    single = (*shape[:dim], 1, *shape[dim + 1 :])
    plain = [t.ordered(value, as_given(value.rank)) for value in on_one_grid(t, node.args[0])]
    values = [t.reshaped(value, single, as_given(len(shape))) for value in plain]
    like = t.like(node, as_given(len(shape)))
    return t.emit("CONCATENATION", values, like, t.title(node), values[0].grid, axis=dim)


def part(t: Translator, x: Value, dim: int, start: int, end: int, step: int, name: str) -> Value:
    """A part of a tensor."""
    place = x.place(dim)
    begin, stop, steps = [0] * x.rank, list(x.stored.shape), [1] * x.rank
    begin[place], stop[place], steps[place] = start, end, step
    shape = [*x.stored.shape]
    shape[place] = len(range(start, end, step))
    like = Value(FileTensor(-1, tuple(shape), x.stored.dtype), x.order)
    operands = [x, t.integers(begin), t.integers(stop), t.integers(steps)]
    return t.emit("STRIDED_SLICE", operands, like, name, x.grid)


def slice_(t: Translator, node: fx.Node) -> Value:
    """Every so many of a dimension."""
    x, dim = moved(t, node.args[0]), argument(node, "dim")
    have = x.shape[dim % x.rank]
    start, end, step = slice_of(t, node, have)
    return x if (start, end, step) == (0, have, 1) else part(t, x, dim, start, end, step, t.title(node))


def slice_of(t: Translator, node: fx.Node, have: int) -> tuple[int, int, int]:
    """Where a slice of so many begins and ends, and its step."""
    start, end, step = (argument(node, name) for name in ("start", "end", "step"))
    return slice(_int(t, start), _int(t, end), step).indices(have)


def _int(t: Translator, value: Any) -> int | None:
    value = t.constants.get(value, value) if isinstance(value, fx.Node) else value
    return None if value is None else int(value)


def narrow(t: Translator, node: fx.Node) -> Value:
    """So many of a dimension."""
    x, dim = moved(t, node.args[0]), argument(node, "dim")
    start = _int(t, argument(node, "start")) or 0
    start = start % x.shape[dim % x.rank]
    return part(t, x, dim, start, start + int(argument(node, "length")), 1, t.title(node))


def select(t: Translator, node: fx.Node) -> Value:
    """One of a dimension, which goes."""
    x = moved(t, node.args[0])
    dim = argument(node, "dim") % x.rank
    index = (_int(t, argument(node, "index")) or 0) % x.shape[dim]
    return without(t, part(t, x, dim, index, index + 1, 1, t.title(node)), dim)


def without(t: Translator, x: Value, dim: int) -> Value:
    """A tensor without a dimension of size 1."""
    place = x.place(dim)
    order = tuple(other - (other > dim) for other in x.order if other != dim)
    return t.reshaped(x, (*x.stored.shape[:place], *x.stored.shape[place + 1 :]), order)


def split(t: Translator, node: fx.Node) -> list[Value]:
    """The parts of a tensor, as slices."""
    x, dim = moved(t, node.args[0]), argument(node, "dim")
    parts, start = [], 0
    for number, piece in enumerate(node.meta["val"]):
        end = start + int(piece.shape[dim])
        parts.append(part(t, x, dim, start, end, 1, f"{t.title(node)}.{number}"))
        start = end
    return parts


def unbind(t: Translator, node: fx.Node) -> list[Value]:
    """What lies beside each other in a dimension."""
    x = moved(t, node.args[0])
    dim = argument(node, "dim") % x.rank
    title = t.title(node)
    return [without(t, part(t, x, dim, at, at + 1, 1, f"{title}.{at}"), dim) for at in range(x.shape[dim])]


def pixel_shuffle(t: Translator, node: fx.Node) -> Value:
    """Channels as pixels: split, transposed, joined."""
    factor = argument(node, "upscale_factor")
    x = t.ordered(moved(t, node.args[0]), channels_last(4))
    batch, height, width, channels = x.stored.shape
    inner = channels // factor**2
    apart = t.reshaped(x, (batch, height, width, inner, factor, factor), as_given(6))
    turned = t.ordered(apart, (0, 1, 4, 2, 5, 3))
    return t.reshaped(turned, (batch, height * factor, width * factor, inner), channels_last(4))


def pad(t: Translator, node: fx.Node) -> Value:
    """A tensor with a number, or its own mirror image, around it."""
    x, mode, filling = moved(t, node.args[0]), argument(node, "mode", "constant"), argument(node, "value") or 0
    if mode in ("replicate", "circular"):
        return repeated(t, node, x, argument(node, "pad"), "edge" if mode == "replicate" else "wrap")
    widths = widths_of(x, argument(node, "pad"))
    if mode == "reflect":
        return t.emit("MIRROR_PAD", [t.as_float(x), t.integers(widths)], t.like(node, x.order), t.title(node), mode=REFLECT)
    if mode != "constant":
        raise EngineError(f"LiteRT: {t.title(node)!r}: padding of mode {mode!r} has no form in a .tflite file.")
    for place, (before, behind) in enumerate(widths):
        if min(before, behind) < 0:
            end = x.stored.shape[place] + min(behind, 0)
            x = part(t, x, x.order[place], max(-before, 0), end, 1, f"{t.title(node)}.cut")
    sides, like = t.integers([(max(before, 0), max(behind, 0)) for before, behind in widths]), t.like(node, x.order)
    if filling == 0:
        return t.emit("PAD", [x, sides], like, t.title(node), x.grid)
    number = t.constant(np.array([np.clip(filling, *FINITE)], np.float32))
    return t.emit("PADV2", [t.as_float(x), sides, number], like, t.title(node))


def reflection_pad(t: Translator, node: fx.Node) -> Value:
    """A tensor with its own mirror image around it."""
    x = t.operand(node.args[0])
    sides = t.integers(widths_of(x, argument(node, "padding")))
    return t.emit("MIRROR_PAD", [x, sides], t.like(node, x.order), t.title(node), mode=REFLECT)


def repeated(t: Translator, node: fx.Node, x: Value, widths: list[int], mode: Any) -> Value:
    """A tensor with its own numbers around it, its edge or its other end."""
    for place, sides in enumerate(widths_of(x, widths)):
        if any(sides):
            numbers = np.pad(np.arange(x.stored.shape[place]), sides, mode)
            shape = (*x.stored.shape[:place], len(numbers), *x.stored.shape[place + 1 :])
            like = Value(FileTensor(-1, shape, x.stored.dtype), x.order)
            x = t.emit("GATHER", [x, t.integers(numbers.tolist())], like, t.title(node), x.grid, axis=place)
    return x


def widths_of(x: Value, widths: list[int]) -> list[tuple[int, int]]:
    """What is added before and behind each dimension, as they lie; PyTorch begins with the last."""
    sides = [(0, 0)] * x.rank
    for axis, side in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        sides[x.place(-1 - axis)] = side
    return sides


def copy(t: Translator, node: fx.Node) -> Value:
    """A tensor in the shape of another, which it takes the place of."""
    return expanded(t, node, moved(t, node.args[1]))


def expand(t: Translator, node: fx.Node) -> Value:
    """A tensor repeated where its size is 1."""
    return expanded(t, node, moved(t, node.args[0]))


def expanded(t: Translator, node: fx.Node, x: Value) -> Value:
    """A tensor in a node's shape."""
    shape = tuple(int(extent) for extent in node.meta["val"].shape)
    x = t.ordered(x, as_given(x.rank))
    x = t.reshaped(x, (*[1] * (len(shape) - x.rank), *x.stored.shape), as_given(len(shape)))
    if x.stored.shape == shape:
        return x
    return t.emit("BROADCAST_TO", [t.as_float(x), t.integers(list(shape))], t.like(node, x.order), t.title(node))


def cast(t: Translator, node: fx.Node) -> Value:
    """Bytes, numbers or truths as float, or float as those; what is float, or stands for it, stays as it is."""
    x, wanted = moved(t, node.args[0]), node.meta["val"].dtype
    dtype = file_dtype(wanted)
    if dtype == (np.float32 if x.grid is not None else x.stored.dtype):
        return x
    return t.emit("CAST", [t.as_float(x)], Value(FileTensor(0, x.stored.shape, dtype), x.order), t.title(node))


TRANSLATIONS: dict[str, Translation] = {
    **dict.fromkeys(("contiguous", "clone", "dropout", "detach", "alias", "lift_fresh_copy"), same),
    **dict.fromkeys(("to", "_to_copy"), cast),
    **dict.fromkeys(("flatten", "reshape", "view", "squeeze", "unsqueeze", "unflatten", "_unsafe_view"), reshape),
    **dict.fromkeys(("permute", "transpose", "t"), permute),
    **dict.fromkeys(("cat", "concat", "concatenate"), concat),
    "stack": stack,
    "slice": slice_,
    "narrow": narrow,
    "select": select,
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), split),
    "unbind": unbind,
    "pixel_shuffle": pixel_shuffle,
    **dict.fromkeys(("pad", "constant_pad_nd"), pad),
    **dict.fromkeys(("reflection_pad1d", "reflection_pad2d"), reflection_pad),
    "copy": copy,
    "expand": expand,
}
