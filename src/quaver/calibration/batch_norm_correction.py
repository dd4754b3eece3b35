"""Batch norm's statistics after rounding: moved as far as rounding moved those of the images."""

import torch
from torch import fx

from quaver.calibration.calibrated_layer import own_tensor
from quaver.calibration.moments import moments_of
from quaver.calibration.sweep import Sweep
from quaver.graph.nodes import argument

MOST = 2.0
"""By how much a variance may be changed: more is a channel in which there is nothing."""


def reestimate(sweep: Sweep, norm: fx.Node) -> None:
    """Mean and variance as they are in the quantized network.

    Statistics of some hundred images would be worse than those of the training set. So the images only say what rounding
    changed: the difference of the means, the quotient of the variances.
    """
    mean, variance = (own_tensor(sweep.program, norm, name) for name in ("running_mean", "running_var"))
    if mean is None or variance is None:
        return
    source = sweep.values[norm.args[0]]  # type: ignore[index]
    before, after = moments_of(source.floating, 1), moments_of(source.rounded, 1)
    mean.copy_(sweep.value(argument(norm, "running_mean"), 0, True) + (after[0] - before[0]))
    change = torch.where(before[1] > 0, after[1] / before[1], 1.0).clamp(1 / MOST, MOST)
    eps = argument(norm, "eps")
    variance.copy_(((variance + eps) * change - eps).clamp_min(0))
