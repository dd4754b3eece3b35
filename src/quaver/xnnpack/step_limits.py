"""What XNNPACK can rescale by: ratios of steps below 256. A tensor that was always zero would have a finer step."""

import math
from typing import Any

from torch import fx

from quaver.graph.nodes import clamp_bounds, is_dequantize, packet
from quaver.int8.requantize import single
from quaver.program import Program
from quaver.program.quantized_tensors import on_one_grid
from quaver.program.views import read

RATIO_LIMIT = 128.0  # XNNPACK 2026 refuses 256 and more when a file is loaded


def fit_steps(program: Program, graph: fx.Graph) -> None:
    """Enlarge the steps of tensors that are too fine for the sums that are rounded to them.

    Tensors on one grid stay on one grid.
    """
    grids: list[list[Any]] = [*on_one_grid(graph)]  # type: ignore[list-item]
    for _ in grids:  # a larger step of one tensor may ask for a larger one of the next
        needed = [max(single(coarsest(program, node.args[0]) / RATIO_LIMIT) for node in grid) for grid in grids]
        too_fine = [(grid, step) for grid, step in zip(grids, needed, strict=True) if grid[0].args[1] < step]
        for grid, step in too_fine:
            for node in (member for quantize in grid for member in (quantize, *quantize.users)):
                node.update_arg(1, step)
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
