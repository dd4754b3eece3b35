"""Where OpenVINO must not carry a step from one op into the next, for what it makes of that is not what the file says."""

from typing import Any

import numpy as np

from quaver.engines.openvino.editing import MOVES
from quaver.engines.openvino.runner import ov

ops = ov.opset13

NORMS = ("MVN", "GroupNormalization")
EXTREMES = ("ReduceMax", "ReduceMin")
LOWEST = np.finfo(np.float32).min
NEARLY = 0.01
"""Steps that differ by less: OpenVINO takes 0.996 of the 128 or 255 steps of a range for none."""


def keep_apart(model: ov.Model) -> None:
    """Put an op that changes nothing, and that no step is carried past, where a step has to stay.

    In front of a norm: OpenVINO takes the step of an integer tensor out of it, for a norm has the same result at any scale,
    but for its epsilon, which it leaves as it is: next to nothing beside the variance of integers. In front of a rounding
    of what is rounded already to nearly the same step: it leaves the second out. In front of a rounding of a maximum along
    an axis: in one kernel with it, most integers are wrong, by any number of steps. Behind an average over windows
    in a difference or a product: it rounds the average to whole steps (all seen in 2026.4).
    """
    averaged = [
        port
        for op in model.get_ordered_ops()
        if op.get_type_name() in ("Multiply", "Subtract")
        for port in op.inputs()
        if _is_average(port.get_source_output().get_node())
    ]
    roundings = [op for op in model.get_ordered_ops() if op.get_type_name() == "FakeQuantize"]
    norms = [op for op in model.get_ordered_ops() if op.get_type_name() in NORMS]
    first_inputs = [op.input(0) for op in [*(norms if roundings else ()), *filter(_is_lost, roundings)]]
    for port in first_inputs + averaged:
        port.replace_source_output(ops.maximum(port.get_source_output(), LOWEST).output(0))
    model.validate_nodes_and_infer_types()


def _is_average(op: ov.Node) -> bool:
    """Whether an op gives averages over windows, perhaps moved elsewhere."""
    if op.get_type_name() in (*MOVES, "Concat", "MaxPool", "Relu"):
        return any(_is_average(value.get_node()) for value in op.input_values())
    return bool(op.get_type_name() == "AvgPool")


def _is_lost(rounding: ov.Node) -> bool:
    """Whether OpenVINO would not round as the file says."""
    return rounding.input_value(0).get_node().get_type_name() in EXTREMES or _is_left_out(rounding)


def _is_left_out(rounding: ov.Node) -> bool:
    """Whether OpenVINO would not execute a rounding, though it changes integers."""
    factor, source = np.ones(1, np.float32), rounding.input_value(0).get_node()
    while source.get_type_name() in (*MOVES, "MaxPool", "Relu", "Multiply", "Subtract"):
        if source.get_type_name() in ("Multiply", "Subtract"):
            constant = source.input_value(1).get_node()
            if constant.get_type_name() != "Constant":
                return False
            factor = factor * constant.data.reshape(-1) if source.get_type_name() == "Multiply" else factor
        source = source.input_value(0).get_node()
    first, second = _step(source), _step(rounding)
    if first is None or second is None:
        return False
    first = first * np.abs(factor)
    quotients = first / second if 1 in (first.size, second.size) or first.size == second.size else first[:, None] / second
    return bool(np.any(quotients != 1) and np.all(np.abs(quotients - 1) < NEARLY))


def _step(op: Any) -> Any:
    """The steps that a rounding is to, one or one for each channel; None for any other op."""
    if op.get_type_name() != "FakeQuantize":
        return None
    low, high = (op.input_value(place).get_node() for place in (1, 2))
    if low.get_type_name() != "Constant" or high.get_type_name() != "Constant":
        return None
    return ((high.data - low.data) / np.float32(op.get_attributes()["levels"] - 1)).reshape(-1)
