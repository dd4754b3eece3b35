"""Weights that processors without VNNI overflow on: where a file gives the same result, and where it does not."""

import torch
from torch import fx

from quaver.engines import Engine
from quaver.graph.nodes import is_dequantize, is_quantize, op_of, ops_by_name, stored_weight
from quaver.operators import facts, saturation_axis
from quaver.program import EVAL, Program
from quaver.program.views import read
from quaver.quantizers.saturation import without_overflow


def overflowing(program: Program, engine: Engine) -> list[str]:
    """The layers of a frozen program in which two products of neighbours can leave 16 bits, on an engine that adds so."""
    if not engine.saturates:
        return []
    return [name for name, node in ops_by_name(program.graphs[EVAL]).items() if _can_overflow(program, node)]


def _can_overflow(program: Program, node: fx.Node) -> bool:
    if not facts(node).is_layer or not all(map(is_dequantize, node.args[:2])):
        return False
    weight: fx.Node = node.args[1]  # type: ignore[assignment]
    if is_quantize(weight.args[0]):  # computed by the model
        return False
    integers = read(program, str(stored_weight(weight).target)).float()
    axis = saturation_axis(node, op_of(node).type, tuple(integers.shape))
    return axis is not None and not torch.equal(without_overflow(integers, axis), integers)


def saturates_here(program: Program, engine: Engine) -> bool:
    """Whether this processor would overflow on the program's weights."""
    return engine.saturates_here() and bool(overflowing(program, engine))
