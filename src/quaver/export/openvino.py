"""A program as an OpenVINO model: ``model.xml`` and ``model.bin``, read from its ONNX form."""

import json
import re
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from quaver.errors import EngineError
from quaver.export.onnx import refill
from quaver.runtime.openvino import ov

NUMBERED = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")  # as OpenVINO names what nobody named


def write(model: onnx.ModelProto, path: Path, origin: dict[str, Any]) -> None:
    """Write ``path`` (.xml) and its weights beside it; ``origin`` goes into the model's runtime information."""
    try:
        ready = _scaled_apart(_padded_apart(model))
        converted = ov.convert_model(BytesIO(ready.SerializeToString()))  # a path it would split at commas
    except Exception as error:  # OpenVINO's frontends raise classes of their own
        raise EngineError(f"export: OpenVINO cannot read the program: {_last_line(error)}") from error
    _name_by_place(converted)
    converted.set_rt_info(json.dumps(origin, sort_keys=True), ["quaver"])
    try:
        ov.save_model(converted, path, compress_to_fp16=False)  # batch norm's biases and steps are not ours to round
    except RuntimeError as error:  # its streams do not say why: mostly the disk is full
        left = f"{shutil.disk_usage(path.parent).free:,} bytes"
        raise OSError(
            f"OpenVINO could not write the file ({_last_line(error)}). Is the disk full? It has {left} left"
        ) from error


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[-1]


def _padded_apart(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the zeros around average pools of signed tensors put there by a node of their own, and rounded again.

    A tensor that a convolution reads, too, is stored with 128 added; OpenVINO's pool would count zeros of that as padding
    (seen in 2026.4). Without the rounding, which changes nothing, it takes the node back into the pool.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    graph = twin.graph
    signed = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT8}
    rounding = {
        node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[2] in signed
    }
    kept = []
    for node in graph.node:
        options = {attribute.name: attribute for attribute in node.attribute}
        pads = list(options["pads"].ints) if node.op_type == "AveragePool" and "pads" in options else []
        if any(pads) and "count_include_pad" in options and options["count_include_pad"].i and node.input[0] in rounding:
            half = len(pads) // 2
            widths = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
            names = [f"{node.name}.{word}" for word in ("pads", "padded", "integers", "rounded")]
            graph.initializer.append(numpy_helper.from_array(widths, names[0]))
            grid = rounding[node.input[0]].input[1:]
            kept.append(onnx.helper.make_node("Pad", [node.input[0], names[0]], names[1:2], names[1]))
            kept.append(onnx.helper.make_node("QuantizeLinear", [names[1], *grid], names[2:3], names[2]))
            kept.append(onnx.helper.make_node("DequantizeLinear", [names[2], *grid], names[3:], names[3]))
            node.input[0] = names[3]
            options["pads"].ints[:] = [0] * len(pads)
        kept.append(node)
    refill(graph.node, kept)
    return twin


def _scaled_apart(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with factors per position behind a linear layer applied to a tensor of one dimension more.

    OpenVINO takes them for factors of the layer's channels, or multiplies products and bias by different ones (seen in
    2026.4). With a dimension in front it does neither.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    graph = twin.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}

    def is_linear(name: str) -> bool:
        """Whether a tensor is a matrix product, with what is added to it."""
        maker = makers.get(name)
        sums = maker is not None and maker.op_type == "Add" and any(map(is_linear, maker.input))
        return sums or (maker is not None and maker.op_type == "MatMul")

    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in graph.value_info}
    for norm in [node for node in graph.node if node.op_type == "BatchNormalization" and is_linear(node.input[0])]:
        if norm.input[0] in ranks and all(name in constants for name in norm.input[1:]):
            _spell_out_norm(graph, norm, constants, ranks[norm.input[0]])
    kept = []
    for node in graph.node:
        factors = [constants[name] for name in node.input if name in constants] if node.op_type in ("Mul", "Div") else []
        positions = any(size != 1 for factor in factors for size in factor.dims[:-1])
        place = next((place for place, name in enumerate(node.input) if is_linear(name)), None)
        if place is None or not positions:
            kept.append(node)
            continue
        result, axis = node.output[0], f"{node.output[0]}.axis"
        graph.initializer.append(numpy_helper.from_array(np.array([0]), axis))
        source, node.input[place], node.output[0] = node.input[place], f"{result}.apart", f"{result}.scaled"
        kept.append(onnx.helper.make_node("Unsqueeze", [source, axis], [node.input[place]], node.input[place]))
        kept.append(node)
        kept.append(onnx.helper.make_node("Squeeze", [node.output[0], axis], [result], f"{result}.back"))
    refill(graph.node, kept)
    return twin


def _spell_out_norm(graph: onnx.GraphProto, norm: onnx.NodeProto, constants: dict[str, onnx.TensorProto], rank: int) -> None:
    """A batch norm as what it is once trained: a product and a sum, by constants."""
    gamma, beta, mean, variance = (numpy_helper.to_array(constants[name]) for name in norm.input[1:])
    epsilon = next((attribute.f for attribute in norm.attribute if attribute.name == "epsilon"), 1e-5)  # ONNX' default
    factor = gamma * (np.float32(1) / np.sqrt(variance + np.float32(epsilon)))
    names = [f"{norm.output[0]}.{word}" for word in ("factor", "shift", "product")]
    for name, value in zip(names, (factor, beta - mean * factor), strict=False):
        constants[name] = numpy_helper.from_array(value.reshape(-1, *[1] * (rank - 2)), name)
        graph.initializer.append(constants[name])
    position = list(graph.node).index(norm)
    graph.node.insert(position, onnx.helper.make_node("Mul", [norm.input[0], names[0]], names[2:], names[2]))
    norm.CopyFrom(onnx.helper.make_node("Add", [names[2], names[1]], norm.output, norm.name))


def _name_by_place(model: ov.Model) -> None:
    """Names for the ops that have none: OpenVINO numbers them over a process's life, and equal programs make equal files."""
    for place, op in enumerate(model.get_ordered_ops()):
        if op.get_type_name() != "Parameter" and NUMBERED.fullmatch(op.get_friendly_name()):
            op.set_friendly_name(f"{op.get_type_name()}_{place}")
