"""The integers of every quantized tensor: as the simulation has them, and as an engine has them."""

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


def simulation(program: Program) -> Simulation:
    """``program``, frozen, int8 or mobile, with the integers of its quantize nodes as further outputs."""
    nodes = [node for node in program.graphs[EVAL].nodes if is_quantize(node)]
    graph = program.lowered()
    found = {node.meta["quantizes"]: node for node in graph.nodes if "quantizes" in node.meta}
    end = next(node for node in graph.nodes if node.op == "output")
    inside: Any = [found[node.name] for node in nodes]
    end.args = ((end.args[0], inside),)
    graph.lint()
    scales = {name: float(node.args[1]) for name, node in zip(quantized_tensors(program), nodes, strict=True)}  # type: ignore[arg-type]
    return Simulation(scales, Executable(program, graph))


class Inside:
    """An engine that shows its inside: `run` gives the model's outputs and the integers of each tensor in ``names``.

    ``names`` are those of the tensors asked for that the engine's file still has: a converter drops a quantize node whose
    input lies on its grid already.
    """

    def __init__(self, file: Path, scales: dict[str, float], threads: int = 1) -> None:
        self.names, self.runner = _with_outputs(file, list(scales), threads)
        self.scales = [np.float32(scales[name]) for name in self.names]

    def run(self, *batch: NDArray[Any]) -> tuple[list[NDArray[Any]], dict[str, Integers]]:
        """Outputs, and the integers (without zero point) of every quantized tensor."""
        got = self.runner(*batch)
        values = list(got if isinstance(got, tuple) else (got,))
        own = len(values) - len(self.scales)
        whole = [np.rint(value / scale) for value, scale in zip(values[own:], self.scales, strict=True)]
        return values[:own], dict(zip(self.names, whole, strict=True))


def _with_outputs(file: Path, names: list[str], threads: int) -> tuple[list[str], Runner]:
    """The model with these tensors as further outputs. They are read behind their dequantize nodes, which engines fuse."""
    if file.suffix == ".xml":
        from quaver.runtime import openvino

        model = openvino.read(file)
        there = {name for op in model.get_ops() for port in op.outputs() for name in port.get_names()}
        names = [name for name in names if rounded_name(name) in there]
        model.add_outputs([rounded_name(name) for name in names])
        return names, openvino.OpenVINORunner(model, threads)
    import onnx

    from quaver.runtime.onnxruntime import ONNXRuntimeRunner

    proto = onnx.load(file)
    tensors = [onnx.helper.make_tensor_value_info(rounded_name(name), onnx.TensorProto.FLOAT, None) for name in names]
    proto.graph.output.extend(tensors)
    return names, ONNXRuntimeRunner(proto.SerializeToString(), threads)
