"""A program as an OpenVINO model: ``model.xml`` and ``model.bin``, read from its ONNX form."""

import json
import re
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from quaver.engines.engine import WriteOptions
from quaver.engines.openvino.barriers import LOWEST, keep_apart
from quaver.engines.openvino.editing import CONVOLUTIONS, MOVES, hand_over, is_layer
from quaver.engines.openvino.norms import round_norms, spell_out_norm
from quaver.engines.openvino.rows import put_on_rows, round_on_rows
from quaver.engines.openvino.runner import EXACT, EXACT_IN_FILE, ov
from quaver.errors import EngineError
from quaver.onnx.byte_input import take_bytes
from quaver.onnx.editing import array_of, constant, insert_before, made_by, operand
from quaver.onnx.model import checked_proto, shared_model
from quaver.program import Program
from quaver.program.quantized_tensors import quantized_tensors, rounded_name

ops = ov.opset13

NOTHING = np.float32(1e-35)
"""A bias that changes no result, not even where a range of zeros has the smallest of steps, and that OpenVINO does not take
out as it would a zero."""
NUMBERED = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")  # as OpenVINO names what nobody named


def write(program: Program, path: Path, origin: dict[str, Any], options: WriteOptions) -> None:
    """Write ``path`` (.xml) and its weights beside it; ``origin`` goes into the model's runtime information."""
    model = shared_model(program, options.shared)
    take_bytes(model, program, options.image)
    unshare_weights(model.graph)
    pad_apart(model.graph)
    scale_apart(model.graph)
    add_apart(model.graph)
    try:
        content = checked_proto(model, origin).SerializeToString()
        converted = ov.convert_model(BytesIO(content))  # a path it would split at commas
    except Exception as error:  # OpenVINO's frontends raise classes of their own
        raise EngineError(f"export: OpenVINO cannot read the program: {_last_line(error)}") from error
    converted = _with_every_input(converted, program)
    _keep_constants_unrounded(converted)
    if options.same_on_amx:
        _store_signed_from_zero(converted)
    round_norms(converted, program)
    _give_biases(converted)
    keep_apart(converted)
    put_on_rows(converted, {rounded_name(tensor.name) for tensor in quantized_tensors(program)})
    round_on_rows(converted)
    _take_the_first_of_equals(converted)
    packed = _pack_small_weights(converted)
    _name_by_place(converted)
    converted.set_rt_info(json.dumps(origin, sort_keys=True), ["quaver"])
    for name in EXACT_IN_FILE:
        converted.set_rt_info(EXACT[name], ["runtime_options", name])
    try:
        ov.save_model(converted, path, compress_to_fp16=False)  # batch norm's biases and steps are not ours to round
    except RuntimeError as error:  # its streams do not say why: mostly the disk is full
        left = f"{shutil.disk_usage(path.parent).free:,} bytes"
        raise OSError(
            f"OpenVINO could not write the file ({_last_line(error)}). Is the disk full? It has {left} left"
        ) from error
    del packed  # not before the file is written


def _last_line(error: Exception) -> str:
    """What went wrong, of a message that begins with where in OpenVINO's source, and may end with advice for its authors."""
    return (str(error).partition("\nSummary:")[0].strip().splitlines() or [""])[-1]


def unshare_weights(graph: ir.Graph) -> None:
    """Give every layer a weight of its own, where several share one: OpenVINO runs those in float (seen in 2026.4).

    What is written twice is stored once, for its writer looks for equal constants.
    """
    taken: set[ir.Value] = set()
    for node in [node for node in graph if node.op_type == "DequantizeLinear" and is_constant(node.inputs[0])]:
        weight = operand(node)
        if weight in taken:
            node.replace_input_with(0, constant(graph, weight.name, array_of(weight)))
        taken.add(weight)


def _with_every_input(model: ov.Model, program: Program) -> ov.Model:
    """The model with the inputs that it does not read as well: OpenVINO leaves them out, and the program takes them."""
    read = {parameter.output(0).get_any_name(): parameter for parameter in model.get_parameters()}
    leaves = program.signature.tensors
    if len(read) == len(leaves):
        return model
    parameters = []
    for leaf in leaves:
        parameter = read.get(leaf.name)
        if parameter is None:
            shape = [-1 if size is None else size for size in leaf.shape]
            parameter = ops.parameter(shape, ov.Type(torch.empty(0, dtype=leaf.dtype).numpy().dtype), name=leaf.name)
            parameter.output(0).set_names({leaf.name})
        parameters.append(parameter)
    return ov.Model(model.get_results(), parameters, model.get_friendly_name())


def pad_apart(graph: ir.Graph) -> None:
    """Put the zeros around average pools of signed tensors there by a node of their own, and round them again.

    A tensor that a convolution reads, too, is stored with 128 added; OpenVINO's pool would count zeros of that as padding
    (seen in 2026.4). Without the rounding, which changes nothing, it takes the node back into the pool.
    """
    for node in list(graph):
        if node.op_type != "AveragePool" or not node.attributes.get_int("count_include_pad", 0):
            continue
        pads, rounding = node.attributes.get_ints("pads", ()) or (), made_by(node.inputs[0], "DequantizeLinear")
        if not any(pads) or rounding is None or operand(rounding, 2).dtype is not ir.DataType.INT8:
            continue
        half, grid = len(pads) // 2, rounding.inputs[1:]
        widths = constant(graph, f"{node.name}.pads", np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64))
        padded = insert_before(node, "Pad", [node.inputs[0], widths], f"{node.name}.padded")
        whole = insert_before(node, "QuantizeLinear", [padded, *grid], f"{node.name}.integers")
        node.replace_input_with(0, insert_before(node, "DequantizeLinear", [whole, *grid], f"{node.name}.rounded"))
        node.attributes["pads"] = ir.AttrInt64s("pads", [0] * len(pads))


def scale_apart(graph: ir.Graph) -> None:
    """Apply factors per position behind a linear layer to a tensor of one dimension more.

    OpenVINO takes them for factors of the layer's channels, or multiplies products and bias by different ones (seen in
    2026.4). With a dimension in front it does neither. Batch norms are spelled out for that, and for `round_norms`.
    """
    for norm in list(graph):
        if norm.op_type != "BatchNormalization" or operand(norm).shape is None:
            continue
        if all(map(is_constant, norm.inputs[1:])):
            spell_out_norm(graph, norm, len(operand(norm).shape or ()))
    for node in [node for node in graph if node.op_type in ("Mul", "Div")]:
        factors = [array_of(value) for value in node.inputs if is_constant(value)]
        place = next((place for place, value in enumerate(node.inputs) if is_linear_result(value)), None)
        if place is None or not any(size != 1 for factor in factors for size in factor.shape[:-1]):
            continue
        result = node.outputs[0]
        axis = constant(graph, f"{result.name}.axis", np.array([0]))
        node.replace_input_with(place, insert_before(node, "Unsqueeze", [node.inputs[place], axis], f"{result.name}.apart"))
        back = ir.node("Squeeze", [None, axis], outputs=[ir.val(f"{result.name}.back")], name=f"{result.name}.back")
        graph.insert_after(node, back)
        result.replace_all_uses_with(back.outputs[0], replace_graph_outputs=True)
        back.replace_input_with(0, result)
        result.shape = None
        result.name, back.outputs[0].name = f"{result.name}.scaled", result.name


def add_apart(graph: ir.Graph) -> None:
    """Add a constant for each position behind a convolution to what that gives, its bias included.

    OpenVINO adds the constant in steps of the convolution's sums, which has other last bits (seen in 2026.4). A maximum with
    the lowest float stands in the way; it is part of the kernel that adds.
    """
    for node in [node for node in graph if node.op_type == "Add"]:
        place = next((place for place in (0, 1) if made_by(node.inputs[place], "Conv", "BatchNormalization")), None)
        if place is None or not is_constant(other := node.inputs[1 - place]):
            continue
        if any(size != 1 for size in array_of(other).shape[2:]):
            lowest = constant(graph, f"{node.name}.lowest", np.array(LOWEST))
            node.replace_input_with(place, insert_before(node, "Max", [node.inputs[place], lowest], f"{node.name}.apart"))


def is_constant(value: ir.Value | None) -> bool:
    """Whether the model holds a value as it is."""
    return value is not None and value.const_value is not None


def is_linear_result(value: ir.Value | None) -> bool:
    """Whether a tensor is a matrix product, with what is added to it."""
    sums = made_by(value, "Add")
    return made_by(value, "MatMul") is not None or (sums is not None and any(map(is_linear_result, sums.inputs)))


def _keep_constants_unrounded(model: ov.Model) -> None:
    """Let OpenVINO round constants that layers read (a detector's queries) when it runs, not when it reads the model.

    It would compute them beforehand, and then not find kernels for the layers behind (seen in 2026.4). So a zero is added
    that only an image can tell to be one: whether its first value is below zero and above zero.
    """
    constants = [
        op for op in model.get_ordered_ops() if op.get_type_name() == "FakeQuantize" and not _reads_values(op.input_value(0))
    ]
    if not constants:
        return
    image = model.get_parameters()[0]
    first = ops.gather(ops.reshape(image, np.array([-1]), False), np.array(0), np.array(0))
    zero = np.array(0, image.get_element_type().to_dtype())
    never = ops.convert(ops.logical_and(ops.less(first, zero), ops.greater(first, zero)), "f32")
    for rounding in constants:
        rounding.input(0).replace_source_output(ops.add(rounding.input_value(0), never).output(0))


def _reads_values(output: ov.Output) -> bool:
    """Whether a tensor depends on what the model is given, and not on its shape alone."""
    waiting, seen = [output.get_node()], set()
    while waiting:
        op = waiting.pop()
        if op.get_type_name() == "Parameter":
            return True
        if op.get_type_name() != "ShapeOf" and op.get_friendly_name() not in seen:
            seen.add(op.get_friendly_name())
            waiting += [value.get_node() for value in op.input_values()]
    return False


def _store_signed_from_zero(model: ov.Model) -> None:
    """Write signed tensors that convolutions read as 0 … 255 less their zero point: ``FakeQuantize(x) − 128·step``.

    OpenVINO stores them so by itself, 128 added before it rounds, where convolutions take unsigned integers only. With AMX
    (or AVX2-VNNI-2) it would keep them signed and round without the 128, which is another integer once in some hundred
    thousand. Written out, all processors take the same steps, on the kernels they take anyway.
    """
    for rounding in [op for op in model.get_ordered_ops() if op.get_type_name() == "FakeQuantize"]:
        low, high = (rounding.input_value(place).get_node() for place in (3, 4))
        is_fixed = low.get_type_name() == high.get_type_name() == "Constant" and rounding.get_attributes()["levels"] == 256
        if not is_fixed or low.data.min() >= 0 or not _reaches_convolution(rounding):
            continue
        step = (high.data - low.data) / np.float32(255)
        zero_point = np.rint(-low.data / step)
        constants = [ops.constant(value) for value in (np.zeros_like(step), step * np.float32(255), step * zero_point)]
        unsigned = ops.fake_quantize(*(rounding.input_value(place) for place in range(3)), *constants[:2], 256)
        signed = ops.subtract(unsigned, constants[2])
        name, output = rounding.get_friendly_name(), rounding.output(0)
        unsigned.set_friendly_name(f"{name}.from_zero")
        signed.set_friendly_name(name)
        hand_over(output, output.get_target_inputs(), signed.output(0))
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
    """Give layers that have no bias, or zeros for one, a bias of next to nothing in their first channel.

    Without one OpenVINO takes the steps of the weights into the rounding behind the layer: it multiplies once where the
    simulation does twice. Where the tensor is also read unrounded it multiplies in the layer, too, and what is rounded is
    next to zero (both seen in 2026.4). A bias that all channels have alike it takes into the rounding first.
    """
    for layer in model.get_ordered_ops():
        if not is_layer(layer):
            continue
        output = layer.output(0)
        readers = output.get_target_inputs()
        if all(reader.get_node().get_type_name() == "Result" for reader in readers):
            continue  # nothing is rounded, and a zero stays one
        biases = [bias for reader in readers if (bias := _added_constant(reader.get_node())) is not None]
        if not biases:
            hand_over(output, readers, ops.add(output, _next_to_nothing(layer)).output(0))
        for bias in biases:
            if not bias.get_source_output().get_node().data.any():
                bias.replace_source_output(_next_to_nothing(layer).output(0))
    model.validate_nodes_and_infer_types()


def _added_constant(op: ov.Node) -> ov.Input | None:
    """The input of a sum that is a constant; None for any other op."""
    constants = [port for port in op.inputs() if port.get_source_output().get_node().get_type_name() == "Constant"]
    return constants[0] if op.get_type_name() == "Add" and constants else None


def _next_to_nothing(layer: ov.Node) -> ov.Node:
    sizes = layer.get_output_partial_shape(0)
    axis, behind = (-1, 0) if layer.get_type_name() == "MatMul" else (1, sizes.rank.get_length() - 2)
    bias = np.zeros(sizes[axis].get_length(), np.float32)
    bias[0] = NOTHING
    return ops.constant(bias.reshape(-1, *[1] * behind))


def _take_the_first_of_equals(model: ov.Model) -> None:
    """Let a choice of the largest values take the first of equal ones, as ONNX says and the simulation does."""
    for op in [op for op in model.get_ordered_ops() if op.get_type_name() == "TopK"]:
        chosen = ops.topk(*op.input_values(), **(op.get_attributes() | {"sort": "value", "stable": True}))
        chosen.set_friendly_name(op.get_friendly_name())
        for old, new in zip(op.outputs(), chosen.outputs(), strict=True):
            hand_over(old, old.get_target_inputs(), new)


def _pack_small_weights(model: ov.Model) -> list[Any]:
    """Store weights of at most 4 bits two to a byte; OpenVINO makes bytes of them again when it reads the file.

    Gives the memory that the new constants share: it has to live as long as the model.
    """
    memory = []
    for op in model.get_ordered_ops():
        if op.get_type_name() != "Constant" or op.get_element_type() != ov.Type.i8 or op.data.size < 2:
            continue
        integers, readers = op.data, op.output(0).get_target_inputs()
        if integers.min() < -8 or integers.max() > 7:
            continue
        nibbles = np.resize(integers.reshape(-1), (-(-integers.size // 2), 2)).astype(np.uint8) & 15
        memory.append(nibbles[:, 0] | nibbles[:, 1] << 4)
        packed = ov.op.Constant(ov.Tensor(memory[-1], ov.Shape(integers.shape), ov.Type.i4))
        packed.set_friendly_name(op.get_friendly_name())
        whole = ops.convert(packed, "i8")
        for reader in readers:
            reader.replace_source_output(whole.output(0))
    return memory


def _name_by_place(model: ov.Model) -> None:
    """Names for the ops that have none: OpenVINO numbers them over a process's life, and equal programs make equal files."""
    for place, op in enumerate(model.get_ordered_ops()):
        if op.get_type_name() != "Parameter" and NUMBERED.fullmatch(op.get_friendly_name()):
            op.set_friendly_name(f"{op.get_type_name()}_{place}")
