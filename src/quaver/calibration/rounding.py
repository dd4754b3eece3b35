"""Adaptive rounding: each weight up or down so that the layer's output, not the weight, is nearest to the float one.

The error is a quadratic form of the integers (`products`), so no image is needed again: one integer after the other takes
the value that is best with the others as they are, some times over (coordinate descent, as QuantEase, Behdin et al., 2023).
What AdaRound and GPTQ look for, in seconds. The integers are kept as weights that lie on the grid.
"""

import torch
from torch import Tensor

from quaver.calibration.calibrated_layer import CalibratedLayer
from quaver.calibration.products import Products
from quaver.quantizers.saturation import LARGEST_SUM

SWEEPS = 6
REACH = 1
"""How far from the nearest integer the one that is chosen may lie."""

BLOCK = 64
"""Integers that are chosen before the errors of all others are brought up to date."""


def round_by_output(layer: CalibratedLayer, products: Products) -> None:
    """Choose the integers of a layer's weight; the weight moves to those that are not the nearest anyway."""
    weight, quantizer = layer.weight.detach(), layer.quantizer
    nearest, scale = quantizer.integers(weight)
    step = quantizer.per_channel(scale, weight).expand_as(weight)
    chosen = _descend(layer, products, nearest, step, _is_held(layer, nearest))
    moved = torch.where(chosen == nearest, weight, chosen * step)
    kept = quantizer.integers(moved)[0] == chosen
    kept = kept.flatten(1).all(1) if quantizer.axis == 0 else kept.all().expand(len(weight))
    layer.weight.copy_(torch.where(kept.view(-1, *[1] * (weight.dim() - 1)), moved, weight))


def _descend(layer: CalibratedLayer, products: Products, start: Tensor, step: Tensor, held: Tensor) -> Tensor:
    """Integers of which no single one can be changed for the better, but for those that are held."""
    grid, squares, is_held = layer.quantizer.grid, products.inputs, layer.in_groups(held)
    nearest, steps = layer.in_groups(start), layer.in_groups(step)[..., :1]
    least, most = (nearest - REACH).clamp_min(grid.low), (nearest + REACH).clamp_max(grid.high)
    least, most = (torch.where(is_held, nearest, end) for end in (least, most))
    integers = nearest.clone()
    slope = integers @ squares - products.outputs / steps  # half the derivative, in steps
    diagonal = squares.diagonal(dim1=1, dim2=2)[:, None]
    for _ in range(SWEEPS):
        before = integers.clone()
        for first in range(0, integers.shape[2], BLOCK):
            part = slice(first, first + BLOCK)
            own, old = squares[:, part, part], integers[..., part].clone()
            here = slope[..., part].clone()
            for k in range(old.shape[2]):
                value = integers[..., first + k]
                best = (value - here[..., k] / diagonal[..., first + k]).round_()
                best = torch.clamp(best, least[..., first + k], most[..., first + k])
                here += (best - value)[..., None] * own[:, None, k]
                integers[..., first + k] = best
            slope += (integers[..., part] - old) @ squares[:, part]
        if torch.equal(before, integers):
            break
    return integers.reshape(start.shape)


def _is_held(layer: CalibratedLayer, nearest: Tensor) -> Tensor:
    """Which weights must stay: those that the range comes from, by themselves or because of a neighbour (``pairs``)."""
    quantizer, weight = layer.quantizer, layer.weight.detach()
    held = torch.zeros_like(weight, dtype=torch.bool)
    if quantizer.range_prevents_saturation:
        sizes = weight.abs().flatten(1) if quantizer.axis == 0 else weight.abs().flatten()[None]
        held.view_as(sizes).scatter_(1, sizes.argmax(1, keepdim=True), True)
    axis = quantizer.saturation_axis
    if axis is None or 2 * quantizer.grid.high <= LARGEST_SUM:
        return held
    count = nearest.shape[axis] // 2 * 2
    pairs = nearest.narrow(axis, 0, count).movedim(axis, 0)
    near = (pairs[0::2] + pairs[1::2]).abs() >= LARGEST_SUM - 2
    held.narrow(axis, 0, count).logical_or_(near.repeat_interleave(2, 0).movedim(0, axis))
    return held
