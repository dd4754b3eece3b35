"""A program as an OpenVINO model: ``model.xml`` and ``model.bin``, read from its ONNX form."""

import json
import re
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
        converted = ov.convert_model(BytesIO(_padded_apart(model).SerializeToString()))  # a path it would split at commas
    except Exception as error:  # OpenVINO's frontends raise classes of their own
        reason = (str(error).strip().splitlines() or [""])[-1]
        raise EngineError(f"export: OpenVINO cannot read the program: {reason}") from error
    _name_by_place(converted)
    converted.set_rt_info(json.dumps(origin, sort_keys=True), ["quaver"])
    ov.save_model(converted, path, compress_to_fp16=False)  # batch norm's biases and steps are not ours to round


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


def _name_by_place(model: ov.Model) -> None:
    """Names for the ops that have none: OpenVINO numbers them over a process's life, and equal programs make equal files."""
    for place, op in enumerate(model.get_ordered_ops()):
        if op.get_type_name() != "Parameter" and NUMBERED.fullmatch(op.get_friendly_name()):
            op.set_friendly_name(f"{op.get_type_name()}_{place}")
