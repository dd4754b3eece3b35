"""The integers of every quantized tensor: as the simulation has them, and as an engine has them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from quaver.export.exactness import moves
from quaver.export.names import quantize_nodes, rounded_name
from quaver.graph.nodes import integers_by_quantize_node, is_quantize
from quaver.int8 import kernels, one_factor, onnxruntime
from quaver.program import Program
from quaver.program.views import Executable
from quaver.runtime import Runner

Integers = NDArray[np.float32]
ON_GRID = 1e-3
"""Steps: a value nearer to a multiple of its step is that multiple. Engines compute multiples in one or two float32
operations, which leaves 255 of them some 3e-5 steps off; a step that is 1 % wrong leaves the first of them 1e-2 off."""
ROUNDS = (kernels.stored_activation, kernels.fixed_integers, onnxruntime.quantized)
"""Kernels that round what was computed in float: their arguments begin with it, its step, and the ends of the grid."""


class Rounded(NamedTuple):
    """A quantized tensor: its integers, and what they were rounded from, in steps."""

    integers: Integers
    steps: NDArray[Any]


@dataclass(frozen=True)
class Simulation:
    """A frozen program that shows its inside: `run` gives its outputs and the integers of each tensor in ``scales``."""

    program: Program
    scales: dict[str, float]
    executable: Executable
    behind: dict[tuple[str, ...], Executable] = field(default_factory=dict)

    def run(self, *tensors: Tensor) -> tuple[list[Tensor], dict[str, Integers]]:
        """Outputs, and the integers (without zero point) of every quantized tensor."""
        with torch.no_grad():
            outputs, integers = self.executable(*tensors)
        return list(outputs), {name: whole.numpy() for name, whole in integers.items()}

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
            outputs, found = self.behind[tuple(given)](*tensors, *values)
        return list(outputs), {name: Rounded(*(value.numpy() for value in found[name])) for name in self.scales}

    def _behind(self, given: list[str], dropped: set[str]) -> Executable:
        graph = self.program.lowered()
        whole = _integers_in(graph, self.program)
        shown = {name: (node, _unrounded(graph, node)) for name, node in whole.items()}
        last = [node for node in graph.nodes if node.op == "placeholder"][-1]
        for number, name in enumerate(given):
            with graph.inserting_after(last):
                last = graph.placeholder(f"given_{number}")
            whole[name].replace_all_uses_with(last)
        rounding = quantize_nodes(self.program)
        for name in filter(lambda name: _is_rounded_again(rounding[name]), dropped):
            integers, steps = shown[name]
            with graph.inserting_after(steps):
                integers.replace_all_uses_with(graph.call_method("float", (steps,)))
        return Executable(self.program, _ending(graph, shown))


def simulation(program: Program, *, inside: bool = True) -> Simulation:
    """``program``, frozen, int8 or mobile, with the integers of its quantize nodes as further outputs.

    Without ``inside`` they are let go as soon as they are used: the integers of a large batch are many.
    """
    graph = program.lowered()
    shown = _integers_in(graph, program) if inside else {}
    scales = {name: float(node.args[1]) for name, node in quantize_nodes(program).items() if inside}  # type: ignore[arg-type]
    return Simulation(program, scales, Executable(program, _ending(graph, shown)))


def _integers_in(graph: fx.Graph, program: Program) -> dict[str, fx.Node]:
    """The node of a lowered graph that computes the integers of each quantized tensor."""
    found = integers_by_quantize_node(graph)
    return {name: found[node.name] for name, node in quantize_nodes(program).items()}


def _ending(graph: fx.Graph, further: Any) -> fx.Graph:
    """The graph with these nodes as a second output beside its own."""
    end = next(node for node in graph.nodes if node.op == "output")
    end.args = ((end.args[0], further),)
    graph.lint()
    return graph


def _is_rounded_again(node: fx.Node) -> bool:
    """Whether whoever reads a quantized tensor only moves it, and rounds it to the same grid."""
    waiting = [reader for back in node.users for reader in back.users]
    while waiting:
        reader = waiting.pop()
        if reader.op != "call_function" or not (is_quantize(reader) or moves(reader)):
            return False
        if is_quantize(reader) and reader.args[1:3] != node.args[1:3]:
            return False
        waiting += [] if is_quantize(reader) else reader.users
    return True


def _unrounded(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """What a node rounds, in steps; the node itself where that is not known."""
    *operands, last = node.args
    with graph.inserting_after(node):
        if node.target in (one_factor.biased, one_factor.multiplied):
            return graph.call_function(node.target, (*operands, Unrounded(*last)))  # type: ignore[misc, arg-type]
        if node.target is onnxruntime.added:
            return graph.call_function(sum_in_steps, node.args)
        if node.target in ROUNDS:
            x, scale, low, high, *how = node.args
            return graph.call_function(in_steps, (x, scale, low, high, how[1] if len(how) > 1 else None))
    return node


class Unrounded(one_factor.Output):
    """A grid between whose ends an op's result is left as it is."""

    __slots__ = ()

    def of(self, total: Tensor, multiplier: Tensor | float) -> Tensor:
        """``total · multiplier``."""
        return (total.double() * multiplier).clamp_(self.low, self.high)


def sum_in_steps(
    x: Tensor, y: Tensor, x_scale: float, y_scale: float, _: tuple[int, ...], output: one_factor.Output
) -> Tensor:
    """``x + y`` in steps of the result, not rounded."""
    return in_steps(x.double() * x_scale + y.double() * y_scale, *output, None)


def in_steps(x: Tensor, scale: float, low: int, high: int, unit: Tensor | float | None) -> Tensor:
    """A tensor in steps, not rounded; one that is counted in a unit of its own is brought out of it."""
    value = x.double() if unit is None else x.double() * unit
    return (value / scale).clamp(low, high)


class Inside:
    """An engine that shows its inside: `run` gives the model's outputs and the integers of each tensor in ``names``.

    ``names`` are those of the tensors asked for that the engine's file still has: a converter drops a quantize node whose
    input lies on its grid already. OpenVINO adds a shortcut inside a convolution only while nobody else wants it: shortcuts,
    ``apart``, are asked for one by one, each of a model that ends there, so that what is seen is what runs; if
    ``shortcuts`` is given, only those. What is on no grid comes as it is, and NaN as NaN.
    """

    def __init__(self, file: Path, scales: dict[str, float], threads: int = 1, *, shortcuts: set[str] | None = None) -> None:
        parts = _openvino if file.suffix == ".xml" else _onnxruntime
        self.parts, there = parts(file, list(scales), threads, set(scales) if shortcuts is None else shortcuts)
        *apart, _ = self.parts
        self.dropped = set(scales) - there
        self.apart = {name for part in apart for name in part.places}
        self.names = [name for name in scales if any(name in part.places for part in self.parts)]
        self.scales = {name: np.float32(scales[name]) for name in self.names}

    def run(self, *batch: NDArray[Any]) -> tuple[list[NDArray[Any]], dict[str, Integers]]:
        """Outputs, and the integers (without zero point) of every quantized tensor."""
        outputs: list[NDArray[Any]] = []
        found: dict[str, Integers] = {}
        for part in self.parts:
            got = part.run(*batch)
            values = list(got if isinstance(got, tuple) else (got,))
            outputs += values[: part.own]
            found |= {name: _whole(values[place] / self.scales[name]) for name, place in part.places.items()}
        return outputs, {name: found[name] for name in self.names}


def _whole(steps: NDArray[Any]) -> Integers:
    whole = np.rint(steps)
    return np.where(np.abs(steps - whole) <= ON_GRID, whole, steps)


class Part(NamedTuple):
    """A model to run: how many of its first outputs are the program's own, and in which it shows each tensor asked for.

    One may show several: what is rounded twice to one grid is one tensor in the file.
    """

    own: int
    places: dict[str, int]
    run: Runner


Parts = tuple[list[Part], set[str]]
"""Models to run, and all tensors that the file has."""


def _openvino(file: Path, names: list[str], threads: int, wanted: set[str]) -> Parts:
    """The model with these tensors as further outputs. They are read behind their dequantize nodes, which engines fuse."""
    import openvino as ov

    from quaver.runtime.openvino import OpenVINORunner, read

    model = read(file)
    ports = {name: port for op in model.get_ops() for port in op.outputs() for name in port.get_names()}
    there = {name: ports[rounded_name(name)] for name in names if rounded_name(name) in ports}
    shortcuts = {
        name: port
        for name, port in there.items()
        if any(reader.get_node().get_type_name() == "Add" for reader in port.get_target_inputs())
    }
    apart = [
        Part(0, {name: 0}, OpenVINORunner(ov.Model([port], model.get_parameters(), name), threads))
        for name, port in shortcuts.items()
        if name in wanted
    ]
    rest, own = [name for name in there if name not in shortcuts], len(model.outputs)
    model.add_outputs([rounded_name(name) for name in rest])
    shown = {name: place for place, output in enumerate(model.outputs) for name in output.get_names()}
    places = {name: shown[rounded_name(name)] for name in rest}
    return [*apart, Part(own, places, OpenVINORunner(model, threads))], set(there)


def _onnxruntime(file: Path, names: list[str], threads: int, _: set[str]) -> Parts:
    import onnx

    from quaver.runtime.onnxruntime import ONNXRuntimeRunner

    proto = onnx.load(file)
    made = {output for node in proto.graph.node for output in node.output}
    names = [name for name in names if rounded_name(name) in made]
    tensors = [onnx.helper.make_tensor_value_info(rounded_name(name), onnx.TensorProto.FLOAT, None) for name in names]
    own = len(proto.graph.output)
    proto.graph.output.extend(tensors)
    places = {name: own + place for place, name in enumerate(names)}
    return [Part(own, places, ONNXRuntimeRunner(proto.SerializeToString(), threads))], set(names)
