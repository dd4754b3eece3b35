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

from quaver.engines.engine import Options
from quaver.engines.openvino.runner import ov
from quaver.errors import EngineError
from quaver.onnx.model import carrying, refill, shared_model
from quaver.program import Program

ops = ov.opset13

CONVOLUTIONS = ("Convolution", "GroupConvolution")
TRANSPOSED = ("ConvolutionBackpropData", "GroupConvolutionBackpropData")
NOTHING = np.float32(1e-30)
"""A bias that changes no result, and that OpenVINO does not take out as it would a zero."""
MOVES = (
    "DepthToSpace",
    "Pad",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "StridedSlice",
    "Transpose",
    "Unsqueeze",
    "VariadicSplit",
)
NUMBERED = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")  # as OpenVINO names what nobody named


def write(program: Program, path: Path, origin: dict[str, Any], options: Options) -> None:
    """Write ``path`` (.xml) and its weights beside it; ``origin`` goes into the model's runtime information."""
    model = carrying(shared_model(program, options.shared), origin)
    try:
        ready = _scaled_apart(_padded_apart(model))
        converted = ov.convert_model(BytesIO(ready.SerializeToString()))  # a path it would split at commas
    except Exception as error:  # OpenVINO's frontends raise classes of their own
        raise EngineError(f"export: OpenVINO cannot read the program: {_last_line(error)}") from error
    if options.same_on_amx:
        _store_signed_from_zero(converted)
    _give_biases(converted)
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


def _store_signed_from_zero(model: ov.Model) -> None:
    """Write signed tensors that convolutions read as 0 … 255 less 128: ``FakeQuantize(x) − 128·step``.

    OpenVINO stores them so by itself, 128 added before it rounds, where convolutions take unsigned integers only. With AMX
    (or AVX2-VNNI-2) it would keep them signed and round without the 128, which is another integer once in some hundred
    thousand. Written out, all processors take the same steps, on the kernels they take anyway.
    """
    for rounding in [op for op in model.get_ordered_ops() if op.get_type_name() == "FakeQuantize"]:
        low, high = (rounding.input_value(place).get_node() for place in (3, 4))
        known = low.get_type_name() == high.get_type_name() == "Constant" and rounding.get_attributes()["levels"] == 256
        if not known or low.data.min() >= 0 or not _reaches_convolution(rounding):
            continue
        step = (high.data - low.data) / np.float32(255)
        ends = [ops.constant(value) for value in (np.zeros_like(step), step * np.float32(255), step * np.float32(128))]
        unsigned = ops.fake_quantize(*(rounding.input_value(place) for place in range(3)), *ends[:2], 256)
        signed = ops.subtract(unsigned, ends[2])
        name, output = rounding.get_friendly_name(), rounding.output(0)
        unsigned.set_friendly_name(f"{name}.from_zero")
        signed.set_friendly_name(name)
        _hand_over(output, output.get_target_inputs(), signed.output(0))
    model.validate_nodes_and_infer_types()


def _reaches_convolution(op: ov.Node) -> bool:
    """Whether a convolution reads what ``op`` gives: as it is, moved elsewhere, or concatenated and rounded once more."""
    behind = {"FakeQuantize": (*MOVES, "Concat"), "Concat": (*MOVES, "FakeQuantize")}.get(op.get_type_name(), MOVES)
    readers = [reader.get_node() for output in op.outputs() for reader in output.get_target_inputs()]
    return any(
        reader.get_type_name() in CONVOLUTIONS or (reader.get_type_name() in behind and _reaches_convolution(reader))
        for reader in readers
    )


def _give_biases(model: ov.Model) -> None:
    """Give a bias to convolutions that have none where what they give is rounded for one reader and not for another.

    OpenVINO takes the steps of the weights into the rounding, and multiplies by them in the convolution, too (seen in
    2026.4): what is rounded is next to zero. It does not look past a bias.
    """
    for op in model.get_ordered_ops():
        if op.get_type_name() not in CONVOLUTIONS + TRANSPOSED:
            continue
        output = op.output(0)
        readers = output.get_target_inputs()
        rounds = {reader.get_node().get_type_name() == "FakeQuantize" for reader in readers}
        if rounds == {True, False}:
            shape = [1] * output.get_partial_shape().rank.get_length()
            _hand_over(output, readers, ops.add(output, ops.constant(np.full(shape, NOTHING))).output(0))
    model.validate_nodes_and_infer_types()


def _hand_over(old: ov.Output, readers: set[ov.Input], new: ov.Output) -> None:
    """Let these readers of a tensor read another, which takes its names."""
    names = old.get_names()
    old.set_names(set())
    for reader in readers:
        reader.replace_source_output(new)
    new.set_names(names)


def _name_by_place(model: ov.Model) -> None:
    """Names for the ops that have none: OpenVINO numbers them over a process's life, and equal programs make equal files."""
    for place, op in enumerate(model.get_ordered_ops()):
        if op.get_type_name() != "Parameter" and NUMBERED.fullmatch(op.get_friendly_name()):
            op.set_friendly_name(f"{op.get_type_name()}_{place}")
