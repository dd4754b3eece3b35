"""The integers of every quantized tensor: as the simulation has them, and as an engine has them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from quaver.engines import engine_of
from quaver.engines.inspection import Revealed
from quaver.errors import EngineError
from quaver.int8.kernels import IN_STEPS
from quaver.program import EVAL, Program
from quaver.program.quantized_tensors import QuantizedTensor, quantized_tensors, rounded_again
from quaver.program.views import Executable
from quaver.runtime.artefact import provenance

Integers = NDArray[np.float32]
ON_GRID = 1e-3
"""Steps: a value nearer to a multiple of its step is that multiple. Engines compute multiples in one or two float32
operations, which leaves 255 of them some 3e-5 steps off; a step that is 1 % wrong leaves the first of them 1e-2 off."""


class Rounded(NamedTuple):
    """A quantized tensor: its integers, and what they were rounded from, in steps."""

    integers: Integers
    steps: NDArray[Any]


class Simulated(NamedTuple):
    """What a program makes of a batch: its outputs, and the integers (without zero point) of its quantized tensors."""

    outputs: list[Tensor]
    integers: dict[str, Integers]


@dataclass(frozen=True)
class Simulation:
    """A frozen program that shows its inside: `run` gives its outputs and the integers of each tensor in ``scales``."""

    program: Program
    scales: dict[str, float]
    executable: Executable
    behind: dict[tuple[str, ...], Executable] = field(default_factory=dict)

    def run(self, *tensors: Tensor) -> Simulated:
        """Outputs and integers."""
        with torch.no_grad():
            outputs, integers = self.executable(*tensors)
        return Simulated(list(outputs), {name: whole.numpy() for name, whole in integers.items()})

    def run_behind(
        self, given: dict[str, Integers], dropped: set[str], *tensors: Tensor
    ) -> tuple[list[Tensor], dict[str, Rounded]]:
        """Outputs and quantized tensors, each as it follows from the integers ``given`` for the tensors in front of it.

        What an engine computes otherwise then shows where it does so, and not in all that follows. Tensors whose rounding
        was ``dropped`` from the file, because they are rounded to the same grid further down, are not rounded.
        """
        if tuple(given) not in self.behind:
            self.behind[tuple(given)] = self._behind(list(given), dropped)
        values = [torch.from_numpy(whole) for whole in given.values()]
        with torch.no_grad():
            outputs, rounded = self.behind[tuple(given)](*tensors, *values)
        return list(outputs), {name: Rounded(*(value.numpy() for value in rounded[name])) for name in self.scales}

    def _behind(self, given: list[str], dropped: set[str]) -> Executable:
        graph, whole = _lowered(self.program, quantized_tensors(self.program))
        shown = {name: (node, _unrounded(graph, node)) for name, node in whole.items()}
        last = [node for node in graph.nodes if node.op == "placeholder"][-1]
        for number, name in enumerate(given):
            with graph.inserting_after(last):
                last = graph.placeholder(f"given_{number}")
            whole[name].replace_all_uses_with(last)
        for name in rounded_again(self.program) & dropped:
            integers, steps = shown[name]
            with graph.inserting_after(steps):
                integers.replace_all_uses_with(graph.call_method("float", (steps,)))
        return Executable(self.program, _ending(graph, shown))


def simulation(program: Program, *, inside: bool = True) -> Simulation:
    """``program``, frozen, int8 or mobile, with the integers of its quantize nodes as further outputs.

    Without ``inside`` they are let go as soon as they are used: the integers of a large batch are many.
    """
    tensors = quantized_tensors(program) if inside else []
    graph, whole = _lowered(program, tensors)
    return Simulation(program, {tensor.name: tensor.step for tensor in tensors}, Executable(program, _ending(graph, whole)))


def _lowered(program: Program, tensors: list[QuantizedTensor]) -> tuple[fx.Graph, dict[str, fx.Node]]:
    """The graph as the program computes it, and the nodes in it that compute the integers of these tensors."""
    lowering = program.engine.lowering()
    graph = lowering.run(program.graphs[EVAL])
    return graph, {tensor.name: lowering.integers[tensor.dequantize][0] for tensor in tensors}


def _ending(graph: fx.Graph, further: Any) -> fx.Graph:
    """The graph with these nodes as a second output beside its own tensors."""
    end = graph.output_node()
    own: Any = end.args[0]
    end.args = (([value for value in own if isinstance(value, fx.Node)], further),)
    graph.lint()
    return graph


def _unrounded(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """What a node rounds, in steps; the node itself where that is not known."""
    kernel = IN_STEPS.get(node.target)  # type: ignore[arg-type]
    if kernel is None:
        return node
    with graph.inserting_after(node):
        return graph.call_function(kernel, node.args)


class Inside:
    """An engine that shows its inside: `run` gives the model's outputs and the integers of each tensor in ``names``.

    ``names`` are those of the tensors asked for that the engine's file still has: a converter drops a quantize node whose
    input lies on its grid already. Tensors that are computed otherwise once somebody looks, ``apart``, come each from a
    model that ends there. What is on no grid comes as it is, and NaN as NaN.
    """

    def __init__(self, revealed: Revealed, scales: dict[str, float]) -> None:
        self.parts = revealed.parts
        *apart, _ = self.parts
        self.dropped = set(scales) - revealed.tensors
        self.apart = {name for part in apart for name in part.places}
        self.names = [name for name in scales if any(name in part.places for part in self.parts)]
        self.scales = {name: np.float32(scales[name]) for name in self.names}

    @classmethod
    def of(cls, file: Path, scales: dict[str, float]) -> "Inside":
        """Of a file, on the engine that it was written for, with all that it shows."""
        revealed = engine_of(file, provenance(file)).reveal(file, list(scales), 1, scales)
        if revealed is None:
            raise EngineError(f"{file}: its engine does not show its inside.")
        return cls(revealed, scales)

    def run(self, *batch: NDArray[Any]) -> tuple[list[NDArray[Any]], dict[str, Integers]]:
        """Outputs, and the integers (without zero point) of every quantized tensor."""
        outputs: list[NDArray[Any]] = []
        integers: dict[str, Integers] = {}
        for part in self.parts:
            got = part.run(*batch)
            values = list(got if isinstance(got, tuple) else (got,))
            outputs += values[: part.own]
            integers |= {name: _whole(values[place], self.scales[name]) for name, place in part.places.items()}
        return outputs, {name: integers[name] for name in self.names}


def _whole(values: NDArray[Any], scale: np.float32) -> Integers:
    """Values in steps: whole ones, but for what is on no grid. By torch, which counts on all cores."""
    steps = torch.from_numpy(np.asarray(values, np.float32)) / torch.tensor(scale)
    whole = steps.round()
    integers: Integers = torch.where((steps - whole).abs_() <= ON_GRID, whole, steps).numpy()
    return integers
