"""What XNNPACK can rescale by: ratios of steps below 256. A tensor that was always zero would have a finer step."""

import math

from torch import fx

from quaver.graph.nodes import clamp_bounds, is_dequantize, is_quantize, packet
from quaver.int8.requantize import single
from quaver.program import Program
from quaver.program.views import read

RATIO_LIMIT = 128.0  # XNNPACK 2026 refuses 256 and more when a file is loaded


def fit_steps(program: Program, graph: fx.Graph) -> None:
    """Enlarge the steps of tensors that are too fine for the sums that are rounded to them.

    Tensors on one grid stay on one grid.
    """
    quantized = [node for node in graph.nodes if is_quantize(node)]
    for _ in quantized:  # a larger step of one tensor may ask for a larger one of the next
        needed = {node: single(coarsest(program, node.args[0]) / RATIO_LIMIT) for node in quantized}
        too_fine = [node for node in quantized if node.args[1] < needed[node]]
        for node in too_fine:
            rescale(graph, node.args[1], max(node.args[1], needed[node]))
        if not too_fine:
            return


def coarsest(program: Program, node: fx.Node) -> float:
    """The largest step of the sums of the op that gives ``node``, behind a clamp or not; 0 for what is computed in float."""
    if clamp_bounds(node) is not None:
        node = node.args[0]  # type: ignore[assignment]
    if node.op != "call_function" or not node.args or not is_dequantize(node.args[0]):
        return 0.0
    steps = [step_of(program, value) for value in node.args[:2] if is_dequantize(value)]  # type: ignore[arg-type]
    return max(steps) if packet(node) == "add" else math.prod(steps)


def step_of(program: Program, node: fx.Node) -> float:
    """The step of a dequantized tensor; the largest of a weight's."""
    step = node.args[1]
    return read(program, str(step.target)).max().item() if isinstance(step, fx.Node) else float(step)  # type: ignore


def rescale(graph: fx.Graph, old: float, new: float) -> None:
    """Another step for all tensors that have this one; those on one grid have the very same."""
    for node in graph.nodes:
        if (is_quantize(node) or is_dequantize(node)) and node.args[1] == old:
            node.args = (node.args[0], new, *node.args[2:])
