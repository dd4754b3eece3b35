"""Ranges of weights: for each channel the threshold with which the layer's output has the least error.

A threshold below the largest weight is kept as a weight that is cut there: ranges of weights follow from the weights.
"""

import torch
from torch import Tensor

from quaver.analysis.initialise import start
from quaver.calibration.calibrated_layer import CalibratedLayer
from quaver.calibration.products import Products
from quaver.program import Program
from quaver.quantizers import LearnedStep, Quantizer

SHARES = tuple(1 - 0.04 * step for step in range(16))
"""Of the threshold that nothing is cut with: what is tried."""


def search_thresholds(layer: CalibratedLayer, products: Products) -> None:
    """Give every channel of a weight the threshold with the least error, and cut what lies beyond it."""
    weight, quantizer = layer.weight.detach().clone(), layer.quantizer
    whole = quantizer.range_for(weight, None)[0].detach().clone()
    noise_by_share = []
    for share in SHARES:
        cut = _with_threshold(quantizer, weight, share * whole)
        integers, scale = quantizer.integers(cut)
        change = integers * quantizer.per_channel(scale, weight) - weight
        noise_by_share.append(products.noise(layer.in_groups(change)).flatten())
    noise = torch.stack(noise_by_share)
    if quantizer.axis is None:
        noise = noise.sum(1, keepdim=True)
    best = torch.tensor(SHARES, device=weight.device)[noise.argmin(0)]
    layer.weight.copy_(_with_threshold(quantizer, weight, best.reshape(whole.shape) * whole))


def _with_threshold(quantizer: Quantizer, weight: Tensor, threshold: Tensor) -> Tensor:
    """The weight as it must be for its quantizer to have this threshold."""
    if isinstance(quantizer, LearnedStep):
        quantizer.step.copy_(threshold / quantizer.grid.high)
    elif quantizer.range_prevents_saturation:  # the range follows from the weight
        limit = quantizer.per_channel(threshold, weight)
        return weight.clamp(-limit, limit)
    else:
        start(quantizer, 0, float(threshold))
    return weight


def begin(program: Program) -> None:
    """Give weights a range whose rule wants to see them in training first."""
    for title in program.placements.weights:
        quantizer = program.quantizer(title)
        if quantizer.seen is not None and not bool(quantizer.seen):
            start(quantizer, 0, float(quantizer.largest(program.weight(title))))
