"""Weights that processors without VNNI overflow on: where a file gives the same result, and where it does not."""

import torch

from quaver.engines import Engine
from quaver.graph.patterns import IntegerLayer, integer_layers
from quaver.operators import saturation_axis_of
from quaver.program import EVAL, Program
from quaver.program.views import read
from quaver.quantizers.saturation import without_overflow


def overflowing(program: Program, engine: Engine) -> list[str]:
    """The layers of a frozen program in which two products of neighbours can leave 16 bits, on an engine that adds so."""
    if not engine.saturates:
        return []
    return [layer.name for layer in integer_layers(program.graphs[EVAL]) if _can_overflow(program, layer)]


def _can_overflow(program: Program, layer: IntegerLayer) -> bool:
    integers = read(program, layer.weight).float()
    axis = saturation_axis_of(layer.type, tuple(integers.shape), layer.groups)
    return axis is not None and not torch.equal(without_overflow(integers, axis), integers)


def saturates_here(program: Program, engine: Engine) -> bool:
    """Whether this processor would overflow on the program's weights."""
    return engine.saturates_here() and bool(overflowing(program, engine))
