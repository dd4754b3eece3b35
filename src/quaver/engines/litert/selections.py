"""Ops that choose among values: gathers, comparisons, and what follows from them."""

from typing import Any

import numpy as np
import torch
from torch import fx

from quaver.engines.litert.flatbuffer import FileTensor
from quaver.engines.litert.moves import moved, on_one_grid, slice_of
from quaver.engines.litert.pointwise import joined
from quaver.engines.litert.pools import along
from quaver.engines.litert.translator import Translation, Translator, Value, as_given, first_shape, size
from quaver.errors import EngineError
from quaver.graph.nodes import argument

BOOL, INT32 = np.dtype(np.bool_), np.dtype(np.int32)


def index(t: Translator, node: fx.Node) -> Value:
    """Values by constant indices of neighbouring dimensions, which are counted as one."""
    x = t.ordered(moved(t, node.args[0]), as_given(len(node.args[0].meta["val"].shape)))  # type: ignore[union-attr]
    given: list[Any] = list(node.args[1])  # type: ignore[arg-type]
    places = [place for place, value in enumerate(given) if value is not None]
    if places != list(range(places[0], places[-1] + 1)) or any(t.constants.get(given[place]) is None for place in places):
        raise EngineError(
            f"LiteRT: {t.title(node)!r}: indices that the model computes, or of dimensions apart, have no form in a .tflite "
            "file."
        )
    chosen = np.broadcast_arrays(*(whole(t.constants[given[place]]).numpy() for place in places))
    extents = x.shape[places[0] : places[-1] + 1]
    numbers = np.ravel_multi_index([indices % extent for indices, extent in zip(chosen, extents, strict=True)], extents)
    shape = (*x.shape[: places[0]], size(extents), *x.shape[places[-1] + 1 :])
    return gathered(t, node, t.reshaped(x, shape, as_given(len(shape))), numbers, places[0])


def whole(indices: torch.Tensor) -> torch.Tensor:
    """Indices as numbers; a mask as those of what it lets through."""
    return indices.nonzero()[:, 0] if indices.dtype == torch.bool else indices


def index_select(t: Translator, node: fx.Node) -> Value:
    """Values by constant indices of one dimension."""
    x = moved(t, node.args[0])
    x = t.ordered(x, as_given(x.rank))
    return gathered(t, node, x, t.array(argument(node, "index")), argument(node, "dim") % x.rank)


def embedding(t: Translator, node: fx.Node) -> Value:
    """Rows of a table."""
    return gathered(t, node, t.operand(node.args[0]), t.array(node.args[1]), 0)


def unfold(t: Translator, node: fx.Node) -> Value:
    """Windows of a dimension, one behind the other; their entries become the last dimension."""
    x = moved(t, node.args[0])
    x = t.ordered(x, as_given(x.rank))
    dim, length, step = (argument(node, name) for name in ("dimension", "size", "step"))
    dim %= x.rank
    starts = np.arange(0, x.shape[dim] - length + 1, step)
    numbers = starts[:, None] + np.arange(length)
    shape = (*x.shape[:dim], *numbers.shape, *x.shape[dim + 1 :])
    like = Value(FileTensor(-1, shape, x.stored.dtype), as_given(len(shape)))
    apart = t.emit("GATHER", [x, t.integers(numbers.tolist())], like, t.title(node), x.grid, axis=dim)
    last = len(shape) - 1
    return Value(apart.stored, tuple(last if place == dim + 1 else place - (place > dim + 1) for place in range(last + 1)))


def slice_scatter(t: Translator, node: fx.Node) -> Value:
    """A tensor with another in every so many places of a dimension: chosen from both, one behind the other."""
    x, source = on_one_grid(t, node.args[:2])
    dim = argument(node, "dim") % x.rank
    source = t.ordered(source, x.order)
    have, more = x.shape[dim], source.shape[dim]
    start, end, step = slice_of(t, node, have)
    numbers = np.arange(have)
    numbers[start:end:step] = have + np.arange(more)
    place = x.place(dim)
    shape = (*x.stored.shape[:place], have + more, *x.stored.shape[place + 1 :])
    like = Value(FileTensor(-1, shape, x.stored.dtype), x.order)
    both = t.emit("CONCATENATION", [x, source], like, f"{t.title(node)}.both", x.grid, axis=place)
    return t.emit("GATHER", [both, t.integers(numbers.tolist())], x, t.title(node), x.grid, axis=place)


def flip(t: Translator, node: fx.Node) -> Value:
    """Dimensions from the end to the start."""
    x = moved(t, node.args[0])
    for dim in argument(node, "dims"):
        place = x.place(dim)
        backwards = t.integers(list(range(x.stored.shape[place]))[::-1])
        x = t.emit("GATHER", [x, backwards], x, t.title(node), x.grid, axis=place)
    return x


def gathered(t: Translator, node: fx.Node, x: Value, numbers: Any, axis: int) -> Value:
    """The entries of an axis that numbers name."""
    like = t.like(node, as_given(len(node.meta["val"].shape)))
    return t.emit("GATHER", [x, t.integers(numbers)], like, t.title(node), x.grid, axis=axis)


def compared(op: str) -> Translation:
    """Whether two values are so, or a value and a number."""

    def translation(t: Translator, node: fx.Node) -> Value:
        first, second = (t.operand(value) for value in node.args[:2])
        return joined(t, op, node, first, second, gives=BOOL)

    return translation


def logical(op: str) -> Translation:
    """What follows from two truths, or from one."""

    def translation(t: Translator, node: fx.Node) -> Value:
        operands = [t.operand(value) for value in node.args]
        if any(value.stored.dtype != BOOL for value in operands):
            raise EngineError(f"LiteRT: {t.title(node)!r}: bits of numbers have no form in a .tflite file.")
        if len(operands) == 1:
            return t.emit(op, operands, operands[0], t.title(node))
        return joined(t, op, node, operands[0], operands[1], gives=BOOL)

    return translation


def where(t: Translator, node: fx.Node) -> Value:
    """One value or the other: SELECT_V2 wants all three of one rank and order."""
    shape = tuple(int(extent) for extent in node.meta["val"].shape)
    order = as_given(len(shape))
    values = []
    for place, value in enumerate(node.args[:3]):
        operand = t.operand(value)
        operand = t.ordered(operand, as_given(operand.rank))
        array = operand.array if operand.array is None or place == 0 else operand.array.astype(np.float32)
        operand = operand if array is None else t.constant(array)
        values.append(t.reshaped(operand, (*[1] * (len(shape) - operand.rank), *operand.stored.shape), order))
    return t.emit("SELECT_V2", values, t.like(node, order), t.title(node))


def repeat(t: Translator, node: fx.Node) -> Value:
    """A tensor several times beside itself."""
    x, counts = t.operand(node.args[0]), [int(t.constants.get(count, count)) for count in argument(node, "repeats")]
    x = t.ordered(x, as_given(x.rank))
    x = t.reshaped(x, (*[1] * (len(counts) - x.rank), *x.stored.shape), as_given(len(counts)))
    return t.emit("TILE", [x, t.integers(counts)], t.like(node, as_given(len(counts))), t.title(node))


def best(op: str, place: str) -> Translation:
    """The largest, or smallest, of a dimension, and its place where somebody reads it."""

    def translation(t: Translator, node: fx.Node) -> list[Value]:
        x, dim = t.operand(node.args[0]), argument(node, "dim")
        value = along(t, op, x, [dim % x.rank], node)
        return [value, largest(place)(t, node)] if any(reader.args[1] == 1 for reader in node.users) else [value]  # type: ignore

    return translation


def largest(op: str) -> Translation:
    """The place of the largest, or smallest, of a dimension."""

    def translation(t: Translator, node: fx.Node) -> Value:
        x, dim = t.operand(node.args[0]), argument(node, "dim")
        if dim is None:
            raise EngineError(f"LiteRT: {t.title(node)!r}: places of all dimensions have no form in a .tflite file.")
        x = t.ordered(x, as_given(x.rank))
        shape = tuple(extent for place, extent in enumerate(x.shape) if place != dim % x.rank)
        like = Value(FileTensor(-1, shape, INT32), as_given(len(shape)))
        places = t.emit(op, [x, t.integers([dim % x.rank])], like, t.title(node), outputType=2)
        whole = first_shape(node)
        return t.reshaped(places, whole, as_given(len(whole)))

    return translation


TRANSLATIONS: dict[str, Translation] = {
    **dict.fromkeys(("index", "_unsafe_index"), index),
    "index_select": index_select,
    "embedding": embedding,
    "unfold": unfold,
    "slice_scatter": slice_scatter,
    "flip": flip,
    "eq": compared("EQUAL"),
    "ne": compared("NOT_EQUAL"),
    "lt": compared("LESS"),
    "le": compared("LESS_EQUAL"),
    "gt": compared("GREATER"),
    "ge": compared("GREATER_EQUAL"),
    **dict.fromkeys(("bitwise_and", "logical_and"), logical("LOGICAL_AND")),
    **dict.fromkeys(("bitwise_or", "logical_or"), logical("LOGICAL_OR")),
    **dict.fromkeys(("bitwise_not", "logical_not"), logical("LOGICAL_NOT")),
    "where": where,
    "repeat": repeat,
    "max": best("REDUCE_MAX", "ARG_MAX"),
    "min": best("REDUCE_MIN", "ARG_MIN"),
    "argmax": largest("ARG_MAX"),
    "argmin": largest("ARG_MIN"),
}
