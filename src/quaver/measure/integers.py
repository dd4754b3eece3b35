"""The integers of every quantized tensor: as the simulation has them, and as an engine has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quaver.export.names import quantized_tensors, rounded_name
from quaver.int8.lowering import is_quantize
from quaver.program import EVAL, Program
from quaver.program.views import Executable
from quaver.runtime import Runner

Integers = NDArray[np.float32]


@dataclass(frozen=True)
class Simulation:
    """A frozen program that shows its inside: `run` gives its outputs and the integers of each tensor in ``scales``."""

    scales: dict[str, float]
    executable: Executable

    def run(self, *tensors: Tensor) -> tuple[list[Tensor], dict[str, Integers]]:
        """Outputs, and the integers (without zero point) of every quantized tensor."""
        with torch.no_grad():
            outputs, integers = self.executable(*tensors)
        return list(outputs), {name: whole.numpy() for name, whole in zip(self.scales, integers, strict=True)}


def simulation(program: Program, *, inside: bool = True) -> Simulation:
    """``program``, frozen, int8 or mobile, with the integers of its quantize nodes as further outputs.

    Without ``inside`` they are let go as soon as they are used: the integers of a large batch are many.
    """
    shown = (
        [*zip(quantized_tensors(program), filter(is_quantize, program.graphs[EVAL].nodes), strict=True)] if inside else []
    )
    graph = program.lowered()
    found = {node.meta["quantizes"]: node for node in graph.nodes if "quantizes" in node.meta}
    end = next(node for node in graph.nodes if node.op == "output")
    further: Any = [found[node.name] for _, node in shown]
    end.args = ((end.args[0], further),)
    graph.lint()
    scales = {name: float(node.args[1]) for name, node in shown}  # type: ignore[arg-type]
    return Simulation(scales, Executable(program, graph))


class Inside:
    """An engine that shows its inside: `run` gives the model's outputs and the integers of each tensor in ``names``.

    ``names`` are those of the tensors asked for that the engine's file still has: a converter drops a quantize node whose
    input lies on its grid already. OpenVINO adds a shortcut inside a convolution only while nobody else wants it: shortcuts
    are asked for one by one, each of a model that ends there, so that what is seen is what runs.
    """

    def __init__(self, file: Path, scales: dict[str, float], threads: int = 1) -> None:
        parts = _openvino if file.suffix == ".xml" else _onnxruntime
        self.parts = list(parts(file, list(scales), threads))
        self.names = [name for name in scales if any(name in names for names, _ in self.parts)]
        self.scales = {name: np.float32(scales[name]) for name in self.names}

    def run(self, *batch: NDArray[Any]) -> tuple[list[NDArray[Any]], dict[str, Integers]]:
        """Outputs, and the integers (without zero point) of every quantized tensor."""
        outputs: list[NDArray[Any]] = []
        found: dict[str, Integers] = {}
        for names, runner in self.parts:
            got = runner(*batch)
            values = list(got if isinstance(got, tuple) else (got,))
            own = len(values) - len(names)
            outputs += values[:own]
            found |= {name: np.rint(value / self.scales[name]) for name, value in zip(names, values[own:], strict=True)}
        return outputs, {name: found[name] for name in self.names}


Parts = Iterator[tuple[list[str], Runner]]


def _openvino(file: Path, names: list[str], threads: int) -> Parts:
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
    for name, port in shortcuts.items():
        yield [name], OpenVINORunner(ov.Model([port], model.get_parameters(), name), threads)
    rest = [name for name in there if name not in shortcuts]
    model.add_outputs([rounded_name(name) for name in rest])
    yield rest, OpenVINORunner(model, threads)


def _onnxruntime(file: Path, names: list[str], threads: int) -> Parts:
    import onnx

    from quaver.runtime.onnxruntime import ONNXRuntimeRunner

    proto = onnx.load(file)
    tensors = [onnx.helper.make_tensor_value_info(rounded_name(name), onnx.TensorProto.FLOAT, None) for name in names]
    proto.graph.output.extend(tensors)
    yield names, ONNXRuntimeRunner(proto.SerializeToString(), threads)
