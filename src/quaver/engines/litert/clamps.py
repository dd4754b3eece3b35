"""Clamps such as ReLU: in the op in front where LiteRT has a word for that, else as an op of their own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from quaver.engines.litert.flatbuffer import QParams
from quaver.engines.litert.translator import Translation, Translator, Value
from quaver.graph.nodes import clamp_bounds, is_dequantize, is_quantize
from quaver.int8.kernels import fixed_integers

LOW, HIGH = -128, 127
CLAMPS = {"RELU": (0.0, np.inf), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0)}
"""The clamps that LiteRT has a word for, in the order of their numbers as a part of other ops, from 1 on."""


def clamp(t: Translator, node: fx.Node) -> Value:
    """Between bounds; on integers where it is given some."""
    bounds = clamp_bounds(node)
    assert bounds is not None, node
    x: Value = t.values[node.args[0]]  # type: ignore[index]
    word = clamp_op(bounds, x.grid)
    if word:
        return t.emit(word, [x], x, t.title(node), x.grid)
    if x.grid is None:
        return limited(t, x, bounds, (-np.inf, np.inf), t.title(node))
    return limited(t, x, integers_at(x.grid, bounds), (LOW, HIGH), t.title(node))


def clamp_op(bounds: tuple[float, float], grid: QParams | None) -> str:
    """LiteRT's word for a clamp, if it has one that gives the same numbers."""
    if grid is None:
        return next((op for op, own in CLAMPS.items() if own == bounds), "")
    integer_bounds = integers_at(grid, bounds)
    ops = (op for op, own in CLAMPS.items() if integers_at(grid, own) == integer_bounds)
    return "" if integer_bounds == (LOW, HIGH) else next(ops, "")


def integers_at(grid: QParams, bounds: tuple[float, float]) -> tuple[int, int]:
    """The integers of a grid that bounds are rounded to."""
    zero, scale = grid.zero_point, float(grid.scale[0])
    low, high = (int(fixed_integers(torch.tensor(bound), scale, LOW - zero, HIGH - zero)) + zero for bound in bounds)
    return low, high


def limited(t: Translator, x: Value, bounds: tuple[float, float], free: tuple[float, float], name: str) -> Value:
    """Numbers of a tensor's own kind between bounds; those that are free are none."""
    for op, bound, none in zip(("MAXIMUM", "MINIMUM"), bounds, free, strict=True):
        if bound != none:
            x = t.emit(op, [x, t.constant(np.array(bound, x.stored.dtype), x.grid)], x, f"{name}.{op.lower()}", x.grid)
    return x


def emit_clamped(
    t: Translator,
    op: str,
    operands: Sequence[Value | None],
    like: Value,
    node: fx.Node,
    grid: QParams | None,
    **options: Any,
) -> Value:
    """An op that clamps its integers itself, where only a clamp reads them: XNNPACK has no clamp of integers alone."""
    behind = clamp_behind(t, node) if grid is not None else None
    word = clamp_op(clamp_bounds(behind) or (-np.inf, np.inf), grid) if behind is not None else ""
    if word:
        options["fusedActivationFunction"] = 1 + list(CLAMPS).index(word)
    result = t.emit(op, operands, like, t.title(node), grid, **options)
    if word and behind is not None:
        t.values[behind] = result
    return result


def clamp_behind(t: Translator, node: fx.Node) -> fx.Node | None:
    """The clamp that alone reads an op's result, as it is, or rounded to a tensor that the program does not have."""
    while len(node.users) == 1:
        (node,) = node.users
        if clamp_bounds(node) is not None:
            return node
        if node in t.titles or not (is_quantize(node) or is_dequantize(node)):
            return None
    return None


TRANSLATIONS: dict[str, Translation] = dict.fromkeys(("relu", "relu6", "hardtanh"), clamp)
