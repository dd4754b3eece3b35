"""Batch norm's statistics after rounding: moved as far as rounding moved those of the images."""

import torch
from torch import Tensor, fx

from quaver.calibration.bias_correction import mean_of
from quaver.calibration.layers import own_tensor
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
    before, after = moments(source.floating), moments(source.rounded)
    mean.copy_(sweep.value(argument(norm, "running_mean"), 0, True) + (after[0] - before[0]))
    change = torch.where(before[1] > 0, after[1] / before[1], 1.0).clamp(1 / MOST, MOST)
    eps = argument(norm, "eps")
    variance.copy_(((variance + eps) * change - eps).clamp_min(0))


def moments(values: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over all batches."""
    mean = mean_of(values, 1)
    middle = mean.float().view(1, -1, *[1] * (values[0].dim() - 2))
    return mean, mean_of([(value - middle).square() for value in values], 1)
