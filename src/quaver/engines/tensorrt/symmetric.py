"""A program on the grids that TensorRT takes: signed int8, zero at 0."""

from functools import cache
from typing import Any

import torch

from quaver.graph.copying import copy_graph
from quaver.graph.nodes import is_dequantize, is_quantize, tensor_notes
from quaver.grid import Grid
from quaver.program import EVAL, Program
from quaver.quantizers.arithmetic import scale_of

Parameters = tuple[float, int, int, int, torch.dtype]


def symmetric(program: Program) -> Program:
    """The program with every activation on a signed grid; one that was trained for TensorRT has no other."""
    graph = copy_graph(program.graphs[EVAL])
    changed = False
    for node in graph.nodes:
        if (is_quantize(node) or is_dequantize(node)) and len(node.args) == 6:  # of a tensor, not of a channel
            x, *given = node.args
            signed = _signed(*given)
            if signed != tuple(given):
                node.args = (x, *signed)
                node.meta = tensor_notes(node, dtype=torch.int8) if is_quantize(node) else node.meta
                changed = True
    return program.copy(graphs={EVAL: graph}) if changed else program


@cache
def _signed(scale: Any, zero: int, low: int, high: int, dtype: torch.dtype) -> Parameters:
    """The same range with zero at 0: 255 steps become 127 larger ones; fewer fit as they are."""
    if zero == 0 and dtype is torch.int8:
        return scale, zero, low, high, dtype
    least, most = low - zero, high - zero
    whole = Grid(8, narrow=False)
    if whole.low <= least and most <= whole.high:
        return scale, 0, least, most, torch.int8
    larger = float(scale_of(torch.tensor(most * scale), whole))
    return larger, 0, whole.low, whole.high, torch.int8
