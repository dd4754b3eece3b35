"""Weights that processors without VNNI overflow on: where a file gives the same result, and where it does not."""

import torch

from quaver.engines import Engine
from quaver.graph.patterns import integer_layers
from quaver.operators import saturation_axis_of
from quaver.program import EVAL, Program
from quaver.program.views import read
from quaver.quantizers.saturation import without_overflow


def overflowing(program: Program, engine: Engine) -> list[str]:
    """The layers of a frozen program in which two products of neighbours can leave 16 bits, on an engine that adds so."""
    if not engine.saturates:
        return []
    layers = integer_layers(program.graphs[EVAL])
    weights = [read(program, layer.weight).float() for layer in layers]
    axes = [saturation_axis_of(layer.type, tuple(w.shape), layer.groups) for layer, w in zip(layers, weights, strict=True)]
    return [
        layer.name
        for layer, weight, axis in zip(layers, weights, axes, strict=True)
        if axis is not None and not torch.equal(without_overflow(weight, axis), weight)
    ]


def saturates_here(program: Program, engine: Engine) -> bool:
    """Whether this processor would overflow on the program's weights."""
    return engine.saturates_here() and bool(overflowing(program, engine))
