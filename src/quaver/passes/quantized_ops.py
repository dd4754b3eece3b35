"""The ``quantized_decomposed`` ops that frozen graphs are written in; exporters know them by these names."""

import torch
import torch.ao.quantization.fx._decomposed
from torch import fx

from quaver.graph.nodes import tensor_notes
from quaver.grid import Grid

quantized = torch.ops.quantized_decomposed


def quantize_dequantize(graph: fx.Graph, x: fx.Node, scale: float, grid: Grid) -> fx.Node:
    """Two nodes that round ``x`` to the grid and back; unsigned grids are uint8, signed ones int8, both with zero at 0.

    An asymmetric one is uint8, with its smallest integer at 0.
    """
    if grid.is_asymmetric:
        return pair(graph, x, (scale, grid.zero_point, 0, grid.high - grid.low, torch.uint8))
    dtype = torch.int8 if grid.signed else torch.uint8
    return pair(graph, x, (scale, 0, grid.low, grid.high, dtype))


def pair(graph: fx.Graph, x: fx.Node, parameters: tuple[float, int, int, int, torch.dtype]) -> fx.Node:
    """Quantize and dequantize with the same scale, zero point, bounds and dtype."""
    whole = graph.call_function(quantized.quantize_per_tensor.default, (x, *parameters))
    whole.meta = tensor_notes(x, dtype=parameters[-1])
    back = graph.call_function(quantized.dequantize_per_tensor.default, (whole, *parameters))
    back.meta = tensor_notes(x)
    return back


def dequantize_weight(graph: fx.Graph, weight: fx.Node, scale: fx.Node | float, axis: int, grid: Grid) -> fx.Node:
    """The real numbers a stored weight stands for, with one step or one per channel."""
    whole = graph.call_function(torch.ops.aten.to.dtype, (weight, torch.int8))
    whole.meta = tensor_notes(weight, dtype=torch.int8)
    bounds = (grid.low, grid.high, torch.int8)
    if isinstance(scale, fx.Node):
        back = graph.call_function(quantized.dequantize_per_channel.default, (whole, scale, None, axis, *bounds))
    else:
        back = graph.call_function(quantized.dequantize_per_tensor.default, (whole, scale, 0, *bounds))
    back.meta = tensor_notes(weight)
    return back
