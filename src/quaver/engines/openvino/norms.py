"""Batch norms that no layer does by itself, as an OpenVINO file has them: in the ends of the range that is rounded to."""

from typing import Any

import numpy as np
import onnx_ir as ir
from torch import fx

from quaver.engines.openvino.editing import is_layer
from quaver.engines.openvino.runner import ov
from quaver.graph.nodes import argument, calls
from quaver.graph.patterns import rounded_norm
from quaver.onnx.editing import array_of, constant, insert_before
from quaver.program import Program
from quaver.program.quantized_tensors import quantized_tensors, rounded_name
from quaver.quantizers.arithmetic import SMALLEST_FACTOR

ops = ov.opset13


def spell_out_norm(graph: ir.Graph, norm: ir.Node, rank: int) -> None:
    """A batch norm as what it is once trained: a product and a sum, by constants."""
    gamma, beta, mean, variance = map(array_of, norm.inputs[1:])
    epsilon = norm.attributes.get_float("epsilon", 1e-5)  # ONNX' default
    factor = gamma * (np.float32(1) / np.sqrt(variance + np.float32(epsilon)))
    name, shape = norm.outputs[0].name, (-1, *[1] * (rank - 2))
    factors = constant(graph, f"{name}.factor", factor.reshape(shape))
    shift = constant(graph, f"{name}.shift", (beta - mean * factor).reshape(shape))
    product = insert_before(norm, "Mul", [norm.inputs[0], factors], f"{name}.product")
    total = insert_before(norm, "Add", [product, shift], f"{name}.total")
    norm.outputs[0].replace_all_uses_with(total, replace_graph_outputs=True)
    graph.remove(norm, safe=True)
    total.name = name


def round_norms(model: ov.Model, program: Program) -> None:
    """Take batch norms in front of a rounding into the ends of its range, each channel's ``(end − shift)/factor``.

    OpenVINO does so by itself unless a factor is negative or zero (seen in 2026.4). Written out it is the same for all, and
    as the simulation has it (`quantizers.arithmetic`): signs go ahead, where there are any.
    """
    by_name = {port.get_any_name(): op for op in model.get_ordered_ops() for port in op.outputs() if port.get_names()}
    for tensor in quantized_tensors(program):
        norm = rounded_norm(tensor.quantize.args[0], tensor.low < 0)
        if norm is None or tensor.high - tensor.low != 255:
            continue
        rounding = _rounding(by_name.get(rounded_name(tensor.name)))
        if rounding is None:
            continue
        source, factor, shift = rounding.input_value(0), np.float32(1), np.float32(0)
        steps: list[tuple[str, Any, Any]] = []
        count = 2 if calls(norm.steps[0], "batch_norm") else len(norm.steps)
        while len(steps) < count and not _is_bias(source, norm.tensor) and (step := _with_constant(source)) is not None:
            steps.append(step)
            source = step[1]
        for kind, _, value in reversed(steps):
            factor, shift = (factor * value, shift * value) if kind == "Multiply" else (factor, shift + value)
        if np.any(factor < 0):
            source = ops.multiply(source, np.where(factor < 0, np.float32(-1), np.float32(1))).output(0)
        rounding.input(0).replace_source_output(source)
        for place in (1, 2):
            end = rounding.input_value(place).get_node().data
            end = (end - shift) / np.maximum(np.abs(factor), np.float32(SMALLEST_FACTOR))
            rounding.input(place).replace_source_output(ops.constant(end).output(0))
    model.validate_nodes_and_infer_types()


def _rounding(op: Any) -> Any:
    """The FakeQuantize that gives a tensor, behind what brings signed integers back to their place; None if none does."""
    if op is not None and op.get_type_name() == "Subtract":
        op = op.input_value(0).get_node()
    return op if op is not None and op.get_type_name() == "FakeQuantize" else None


def _is_bias(value: Any, layer: fx.Node) -> bool:
    """Whether a sum is the bias of the layer that a norm is of: OpenVINO may have taken in the norm's own factor before."""
    step = _with_constant(value)
    return step is not None and step[0] == "Add" and is_layer(step[1].get_node()) and argument(layer, "bias") is not None


def _with_constant(value: Any) -> tuple[str, Any, Any] | None:
    """What kind of op gives a tensor, of another and of a constant; None where that is not so."""
    op = value.get_node()
    if op.get_type_name() not in ("Multiply", "Add"):
        return None
    sources = [op.input_value(place) for place in (0, 1)]
    constants = [source.get_node() for source in sources if source.get_node().get_type_name() == "Constant"]
    if len(constants) != 1:
        return None
    (tensor,) = [source for source in sources if source.get_node() is not constants[0]]
    return op.get_type_name(), tensor, constants[0].data
