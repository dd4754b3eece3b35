"""An ONNX model rewritten so that ONNX Runtime finds its integer kernels; every integer stays what it is.

It runs a convolution in int8 where a quantize node stands right behind it, and where input and output have one type.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass

from quaver.engines.engine import WriteOptions
from quaver.engines.onnxruntime.arithmetic import ZERO
from quaver.int8.kernels import divided_integers
from quaver.int8.requantize import fitted
from quaver.onnx.byte_input import take_bytes
from quaver.onnx.editing import array_of, constant, insert_before, made_by, only_reader, operand, replace
from quaver.onnx.model import checked_proto, shared_model
from quaver.program import Program

_CLAMPS = ("Relu", "Clip")


def write(program: Program, file: Path, origin: dict[str, Any], options: WriteOptions) -> None:
    """Write a program as ``model.onnx``."""
    model = shared_model(program, options.shared)
    take_bytes(model, program, options.image)
    for_onnxruntime(model)
    file.write_bytes(checked_proto(model, origin).SerializeToString())


def for_onnxruntime(model: ir.Model) -> ir.Model:
    """The model in the form in which ONNX Runtime runs most of it in int8."""
    store_signed_as_unsigned(model.graph)
    drop_idle_clamps(model.graph)
    round_before_clamps(model.graph)
    fit_biases(model.graph)
    RemoveUnusedNodesPass()(model)
    return model


def store_signed_as_unsigned(graph: ir.Graph) -> None:
    """Let signed activations be stored with 128 added: the same steps, and one type for all activations."""
    shifted = constant(graph, "signed_zero_point", np.array(ZERO, np.uint8))
    for node in graph:
        if node.op_type == "QuantizeLinear" and operand(node, 2).dtype is ir.DataType.INT8:
            node.replace_input_with(2, shifted)
            node.outputs[0].type = ir.TensorType(ir.DataType.UINT8)  # its own: copies of a model share types
            for reader, _ in node.outputs[0].uses():
                if reader.op_type == "DequantizeLinear":
                    reader.replace_input_with(2, shifted)


def drop_idle_clamps(graph: ir.Graph) -> None:
    """Leave out a clamp that the rounding behind it does as well: a ReLU6 in front of a range that ends at 6.

    ONNX Runtime sees through a clamp only where the range does not exceed it by the least bit, which the step's 16
    significant bits may make it do.
    """
    for node in list(graph):
        rounding = _only_rounding(node.outputs[0]) if node.op_type in _CLAMPS else None
        if rounding is not None and _is_idle(node, rounding):
            replace(node, operand(node))


def _is_idle(clamp: ir.Node, rounding: ir.Node) -> bool:
    limits = [0.0, np.inf]
    if clamp.op_type == "Clip":
        given = [*clamp.inputs[1:], None, None][:2]
        bounds = [array_of(value) for value in given]
        if any(value is not None and bound is None for value, bound in zip(given, bounds, strict=True)):
            return False  # tensors, known only when it runs
        limits = [end if bound is None else float(bound) for bound, end in zip(bounds, (-np.inf, np.inf), strict=True)]
    scale, zero = float(array_of(rounding.inputs[1])), array_of(rounding.inputs[2])
    extremes = [bound - int(zero) for bound in (np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max)]
    return [int(divided_integers(torch.tensor(limit), scale, *extremes)) for limit in limits] == extremes


def round_before_clamps(graph: ir.Graph) -> None:
    """Round a convolution's output in front of a clamp, too, onto the grid that follows: say, a ReLU onto a signed one.

    To round and clamp gives the integers that to clamp and round gives.
    """
    for node in list(graph):
        rounding = _only_rounding(node.outputs[0]) if node.op_type in _CLAMPS else None
        layer = made_by(node.inputs[0], "Conv", "Gemm") if rounding is not None else None
        if rounding is None or layer is None or operand(layer, 1).producer() is None:
            continue  # its weight comes from no dequantize node
        source = operand(node)
        if only_reader(source) is node:
            grid = rounding.inputs[1:]
            whole = insert_before(node, "QuantizeLinear", [source, *grid], f"{source.name}.whole")
            node.replace_input_with(0, insert_before(node, "DequantizeLinear", [whole, *grid], f"{source.name}.early"))


def fit_biases(graph: ir.Graph) -> None:
    """Give a channel that has next to no weights larger steps, where ONNX Runtime would count its bias in too small ones.

    It turns biases into int32 without a look at their size. What the channel computes is far less than a step of its output.
    """
    for node in list(graph):
        if node.op_type not in ("Conv", "Gemm") or len(node.inputs) < 3 or _only_rounding(node.outputs[0]) is None:
            continue
        x, weight = (made_by(value, "DequantizeLinear") for value in node.inputs[:2])
        values = [array_of(value) for value in (*(weight.inputs[:2] if weight else ()), node.inputs[2])]
        if x is None or weight is None or any(value is None for value in values):
            continue  # computed from the input
        whole, steps, bias = (torch.from_numpy(value.astype(np.float32)) for value in values)
        fitting, larger = fitted(whole, steps, bias, float(array_of(x.inputs[1])), 0)
        if fitting is not whole:
            zeros = np.zeros(len(larger), np.int8)
            for place, value in enumerate((fitting.numpy().astype(np.int8), larger.numpy(), zeros)):
                name = f"{weight.outputs[0].name}.fitting_{place}"
                weight.replace_input_with(place, constant(graph, name, value))
            weight.attributes["axis"] = ir.AttrInt64("axis", 0)


def _only_rounding(value: ir.Value) -> ir.Node | None:
    """The quantize node, where it is the only reader."""
    reader = only_reader(value)
    return reader if reader is not None and reader.op_type == "QuantizeLinear" else None
