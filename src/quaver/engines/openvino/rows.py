"""Linear layers and layer norms on rows: tensors of more than three dimensions as tensors of three.

OpenVINO runs both on any number of dimensions. But only with three does a layer add its bias, apply its activation and
round in the kernel that multiplies; and only then is a norm one kernel, which rounds as well (seen in 2026.4). A reshape
costs nothing: so a file has one in front of such an op, and one behind all that follows value by value until it is rounded.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from quaver.engines.openvino.editing import hand_over, is_linear, is_rounded
from quaver.engines.openvino.runner import ov

ops = ov.opset13

ACTIVATIONS = ("Clamp", "Elu", "Gelu", "HSigmoid", "HSwish", "Mish", "Relu", "Sigmoid", "SoftPlus", "Swish", "Tanh")
WITH_CONSTANTS = ("Add", "FakeQuantize", "Multiply", "Subtract")


def put_on_rows(model: ov.Model, rounded: Collection[str]) -> None:
    """Let linear layers and layer norms, and what follows them value by value, compute on (images, rows, channels).

    Tensors of these names keep their shape, for they are what a file is compared by.
    """
    for op in model.get_ordered_ops():
        if _is_layer_of_rows(op) or _is_layer_norm(op):
            shape = op.get_input_partial_shape(0)
            if shape.rank.is_static and shape.rank.get_length() > 3 and shape[-1].is_static:
                _reshape(op, shape, rounded)
    model.validate_nodes_and_infer_types()


MOST_DIMENSIONS = 5
"""Of what OpenVINO's own kernel rounds: a tensor of more is rounded by another, which divides (seen in 2026.4)."""


def round_on_rows(model: ov.Model) -> None:
    """Round tensors of more than five dimensions on rows; where they are only moved, nobody rounds them."""
    for op in model.get_ordered_ops():
        if op.get_type_name() != "FakeQuantize" or is_rounded(op.input_value(0)):
            continue
        source, shape, ends = op.input_value(0), op.get_input_partial_shape(0), op.inputs()[1:]
        if shape.rank.is_dynamic or shape.rank.get_length() <= MOST_DIMENSIONS or shape[-1].is_dynamic:
            continue
        if any(end.get_partial_shape().is_dynamic or np.prod(end.get_shape()) != 1 for end in ends):
            continue
        readers, result = op.output(0).get_target_inputs(), op.output(0)
        for end in ends:
            end.replace_source_output(ops.constant(end.get_source_output().get_node().data.reshape(1)).output(0))
        rows = ops.reshape(source, np.array([0, -1, shape[-1].get_length()]), special_zero=True)
        op.input(0).replace_source_output(rows.output(0))
        back = ops.reshape(result, _sizes(source, shape[-1].get_length()), special_zero=False)
        hand_over(result, readers, back.output(0))
    model.validate_nodes_and_infer_types()


def _is_layer_of_rows(op: ov.Node) -> bool:
    """Whether an op is a linear layer that reads channels last: OpenVINO has taken in a transpose in front of others."""
    return is_linear(op) and not op.get_attributes()["transpose_a"]


def _is_layer_norm(op: ov.Node) -> bool:
    """Whether an op is a norm over the channels of each row."""
    if op.get_type_name() != "MVN":
        return False
    axes, rank = op.input_value(1).get_node().data.reshape(-1).tolist(), op.get_input_partial_shape(0).rank
    return bool(axes == [-1] or (rank.is_static and axes == [rank.get_length() - 1]))


def _reshape(op: ov.Node, shape: ov.PartialShape, rounded: Collection[str]) -> None:
    """Reshape what an op reads; and back, what has come of it when it is read by more than one, or as more than values."""
    source, result = op.input_value(0), op.output(0)
    while result.get_names().isdisjoint(rounded) and (reader := _by_value(result, shape.rank.get_length())) is not None:
        for constant in _others(reader):
            value = constant.get_source_output().get_node().data
            constant.replace_source_output(ops.constant(value.reshape(value.shape[-1:])).output(0))
        result = reader.get_node().output(0)
    readers = result.get_target_inputs()
    back = ops.reshape(result, _sizes(source, result.get_partial_shape()[-1].get_length()), special_zero=False)
    hand_over(result, readers, back.output(0))
    rows = ops.reshape(source, np.array([0, -1, shape[-1].get_length()]), special_zero=True)
    op.input(0).replace_source_output(rows.output(0))


def _by_value(tensor: ov.Output, rank: int) -> ov.Input | None:
    """Where a tensor is read, if by one op alone, which takes value by value, with constants for each channel at most."""
    readers = list(tensor.get_target_inputs())
    if len(readers) != 1:
        return None
    op, others = readers[0].get_node(), _others(readers[0])
    known = op.get_type_name() in (WITH_CONSTANTS if others else ACTIVATIONS)
    return readers[0] if known and all(_is_by_channel(other, rank) for other in others) else None


def _others(reader: ov.Input) -> list[ov.Input]:
    return [port for port in reader.get_node().inputs() if port.get_index() != reader.get_index()]


def _is_by_channel(reader: ov.Input, rank: int) -> bool:
    """Whether what is read is a constant with one value, or one for each channel."""
    op = reader.get_source_output().get_node()
    if op.get_type_name() != "Constant":
        return False
    sizes = list(op.get_output_shape(0))
    return len(sizes) <= rank and all(size == 1 for size in sizes[:-1])


def _sizes(source: ov.Output, channels: int) -> Any:
    """The sizes of a tensor, with other channels: a constant, where all but one are known beforehand."""
    sizes = [size.get_length() if size.is_static else -1 for size in source.get_partial_shape()][:-1]
    if sizes.count(-1) <= 1:
        return np.array([*sizes, channels])
    known = ops.gather(ops.shape_of(source), np.arange(len(sizes)), np.array(0))
    return ops.concat([known, np.array([channels])], 0)
