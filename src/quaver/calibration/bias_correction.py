"""Bias correction: what rounding adds to a channel's mean is taken off again (Nagel et al., 2019), layer by layer."""

from torch import Tensor

from quaver.calibration.calibrated_layer import CalibratedLayer, own_tensor
from quaver.calibration.moments import moments_of
from quaver.calibration.sweep import Sweep
from quaver.graph.nodes import facts


def can_correct(sweep: Sweep, layer: CalibratedLayer) -> bool:
    """Whether a layer has a place that its outputs' mean is in."""
    return _place(sweep, layer) is not None


def correct_bias(sweep: Sweep, layer: CalibratedLayer) -> None:
    """Give the mean error of a layer's outputs to its bias, or to the mean that its batch norm takes off."""
    place = _place(sweep, layer)
    if place is None:
        return
    axis = facts(layer.node).weight.output_axis
    wanted, got = sweep.values[layer.node].floating, sweep.computed(layer.node)
    error = moments_of(got, axis)[0] - moments_of(wanted, axis)[0]
    place.add_((error if layer.norm is not None else -error).to(place.dtype))


def _place(sweep: Sweep, layer: CalibratedLayer) -> Tensor | None:
    if layer.norm is not None:
        return own_tensor(sweep.program, layer.norm, "running_mean")
    return own_tensor(sweep.program, layer.node, "bias")
