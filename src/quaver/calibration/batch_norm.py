"""Batch norm's statistics after rounding: moved as far as rounding moved those of the images."""

import torch
from torch import Tensor, fx

from quaver.calibration.bias_correction import mean_of
from quaver.calibration.layers import own_tensor
from quaver.calibration.sweep import Sweep

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
    before, after = moments(source.floating), moments(source.rounded)
    mean.copy_(sweep.value(norm.args[3], 0, True) + (after[0] - before[0]))  # type: ignore[arg-type]
    change = (after[1] / before[1].clamp_min(1e-20)).clamp(1 / MOST, MOST)
    variance.mul_(torch.where(before[1] > 0, change, 1.0))


def moments(values: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over all batches."""
    mean = mean_of(values, 1)
    shape = [1, -1, *[1] * (values[0].dim() - 2)]
    return mean, mean_of([(value - mean.view(shape)).square() for value in values], 1)
