"""An ONNX model rewritten so that ONNX Runtime finds its integer kernels; every integer stays what it is.

It runs a convolution in int8 where a quantize node stands right behind it, and where input and output have one type.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import NodeProto, numpy_helper

from quaver.engines.engine import Options
from quaver.engines.onnxruntime.arithmetic import ZERO, quantized
from quaver.int8.requantize import fitted
from quaver.onnx.model import carrying, drop_unread, refill, shared_model
from quaver.program import Program

_CLAMPS = ("Relu", "Clip")
_SHIFTED = "signed_zero_point"


def write(program: Program, file: Path, origin: dict[str, Any], options: Options) -> None:
    """Write a program as ``model.onnx``."""
    model = for_onnxruntime(shared_model(program, options.shared))
    file.write_bytes(carrying(model, origin).SerializeToString())


def for_onnxruntime(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, in the form in which ONNX Runtime runs most of it in int8."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    store_signed_as_unsigned(twin.graph)
    drop_idle_clamps(twin.graph)
    round_before_clamps(twin.graph)
    fit_biases(twin.graph)
    onnx.checker.check_model(twin, full_check=True)
    return twin


def store_signed_as_unsigned(graph: onnx.GraphProto) -> None:
    """Let signed activations be stored with 128 added: the same steps, and one type for all activations."""
    signed = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT8}
    changed = {node.output[0] for node in graph.node if node.op_type == "QuantizeLinear" and node.input[2] in signed}
    for node in graph.node:
        if changed & {node.output[0], *node.input[:1]} and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.input[2] = _SHIFTED
    graph.initializer.append(numpy_helper.from_array(np.array(ZERO, np.uint8), _SHIFTED))
    refill(graph.value_info, [value for value in graph.value_info if value.name not in changed])
    drop_unread(graph)


def drop_idle_clamps(graph: onnx.GraphProto) -> None:
    """Leave out a clamp that the rounding behind it does as well: a ReLU6 in front of a range that ends at 6.

    ONNX Runtime sees through a clamp only where the range does not exceed it by the least bit, which the step's 16
    significant bits may make it do.
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    readers = _readers(graph)
    kept = []
    for node in graph.node:
        rounding = _only_rounding(readers[node.output[0]])
        if node.op_type in _CLAMPS and rounding is not None and _is_idle(node, rounding, values):
            rounding.input[0] = node.input[0]
        else:
            kept.append(node)
    refill(graph.node, kept)
    drop_unread(graph)


def _is_idle(clamp: NodeProto, rounding: NodeProto, values: dict[str, np.ndarray]) -> bool:
    limits = [0.0, np.inf]
    if clamp.op_type == "Clip":
        names = [*clamp.input[1:], "", ""][:2]
        if any(name and name not in values for name in names):
            return False  # tensors, known only when it runs
        limits = [float(values[name]) if name else end for name, end in zip(names, (-np.inf, np.inf), strict=True)]
    scale, zero = float(values[rounding.input[1]]), values[rounding.input[2]]
    ends = [bound - int(zero) for bound in (np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max)]
    return [int(quantized(torch.tensor(limit), scale, *ends)) for limit in limits] == ends


def round_before_clamps(graph: onnx.GraphProto) -> None:
    """Round a convolution's output in front of a clamp, too, onto the grid that follows: say, a ReLU onto a signed one.

    To round and clamp gives the integers that to clamp and round gives.
    """
    makers = {name: node for node in graph.node for name in node.output}
    readers = _readers(graph)

    def hides_a_convolution(clamp: NodeProto) -> bool:
        source = makers.get(clamp.input[0])
        if source is None or source.op_type not in ("Conv", "Gemm") or source.input[1] not in makers:
            return False  # makers: its weight comes from a dequantize node
        return len(readers[clamp.input[0]]) == 1 and _only_rounding(readers[clamp.output[0]]) is not None

    kept = []
    for node in graph.node:
        if node.op_type in _CLAMPS and hides_a_convolution(node):
            (behind,) = readers[node.output[0]]
            whole, rounded = f"{node.input[0]}.whole", f"{node.input[0]}.early"
            kept.append(onnx.helper.make_node("QuantizeLinear", [node.input[0], *behind.input[1:]], [whole], whole))
            kept.append(onnx.helper.make_node("DequantizeLinear", [whole, *behind.input[1:]], [rounded], rounded))
            node.input[0] = rounded
        kept.append(node)
    refill(graph.node, kept)


def fit_biases(graph: onnx.GraphProto) -> None:
    """Give a channel that has next to no weights larger steps, where ONNX Runtime would count its bias in too small ones.

    It turns biases into int32 without a look at their size. What the channel computes is far less than a step of its output.
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    readers = _readers(graph)
    for node in graph.node:
        if node.op_type not in ("Conv", "Gemm") or len(node.input) < 3 or _only_rounding(readers[node.output[0]]) is None:
            continue
        x, weight = (makers.get(name) for name in node.input[:2])
        if x is None or weight is None or x.op_type != "DequantizeLinear":
            continue
        if weight.input[0] not in values or node.input[2] not in values:
            continue  # computed from the input
        whole, steps = (torch.from_numpy(values[name].astype(np.float32)) for name in weight.input[:2])
        bias, scale = torch.from_numpy(values[node.input[2]].copy()), float(values[x.input[1]])
        fitting, larger = fitted(whole, steps, bias, scale, 0)
        if fitting is not whole:
            zeros = np.zeros(len(larger), np.int8)
            for place, value in enumerate((fitting.numpy().astype(np.int8), larger.numpy(), zeros)):
                weight.input[place] = f"{weight.output[0]}.fitting_{place}"
                graph.initializer.append(numpy_helper.from_array(value, weight.input[place]))
            refill(weight.attribute, [onnx.helper.make_attribute("axis", 0)])
    drop_unread(graph)


def _only_rounding(readers: list[NodeProto]) -> NodeProto | None:
    """The quantize node, where it is the only reader."""
    return readers[0] if [node.op_type for node in readers] == ["QuantizeLinear"] else None


def _readers(graph: onnx.GraphProto) -> dict[str, list[NodeProto]]:
    readers: dict[str, list[NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    for value in graph.output:
        readers[value.name].append(NodeProto(op_type="Output"))
    return readers
