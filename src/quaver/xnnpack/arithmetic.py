"""XNNPACK's integer arithmetic: what a mobile program computes, bit for bit.

XNNPACK rounds the output of every op, bias included, and rounds it once: convolutions, linear layers and products as in
`requantize`; a sum of two tensors is fixed-point. Integers come and go as float32, less their zero point; steps are float32
numbers in Python floats.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from quaver.int8.kernels import fixed_integers
from quaver.int8.requantize import Output, single


def added(x: Tensor, y: Tensor, x_scale: float, y_scale: float, output: Output) -> Tensor:
    """``x + y`` in fixed point: multipliers of 21 bits, ties upwards. With a negative step for ``y`` it is a difference."""
    ratios = single(x_scale / output.scale), single(y_scale / output.scale)
    shift = 21 - math.frexp(max(map(abs, ratios)))[1]
    first, second = (round(ratio * 2.0**shift) for ratio in ratios)
    total = x.int() * first + y.int() * second + (1 << (shift - 1))
    return (total >> shift).clamp_(output.low, output.high).float()


def mean(x: Tensor, scale: float, zeros: tuple[int, int], dims: list[int], keepdim: bool, output: Output) -> Tensor:
    """A mean over height and width of a batch of images; over anything else, it is computed in float.

    XNNPACK adds the integers as they are stored, and takes their zero point out in float32, where some ten-thousandths
    of a step are lost. ``zeros`` are the zero points of what comes and of what goes.
    """
    if x.dim() != 4 or sorted(dim % 4 for dim in dims) != [2, 3]:
        return fixed_integers(x.mean(dims, keepdim) * scale, *output)
    (zero_in, zero_out), count = zeros, x.shape[2] * x.shape[3]
    factor = single(single(scale / output.scale) * single(1 / count))
    shift = single(zero_out - single(single(zero_in * count) * factor))
    stored = (x.sum(dims, keepdim, dtype=torch.float64) + zero_in * count).float()
    return (stored * factor + shift).round_().sub_(zero_out).clamp_(output.low, output.high)


def average(
    x: Tensor, scale: float, kernel: list[int], stride: list[int], padding: list[int], divisor: int, output: Output
) -> Tensor:
    """An average pool, padding counted: exported as a depthwise convolution with weights of 1 and a step of 1/divisor."""
    total = F.avg_pool2d(x, kernel, stride, padding, divisor_override=1)
    return output.of(total, single(single(scale * single(1 / divisor)) / output.scale))


def adaptive_average(x: Tensor, scale: float, zeros: tuple[int, int], size: list[int], output: Output) -> Tensor:
    """An average pool to images of a size: a mean, or a plain pool, or, where the windows differ, computed in float."""
    if size == [1, 1]:
        return mean(x, scale, zeros, [-2, -1], True, output)
    kernel = equal_windows(x, size)
    if kernel is None:
        return fixed_integers(torch.ops.aten.adaptive_avg_pool2d(x, size) * scale, *output)
    return average(x, scale, kernel, kernel, [0, 0], math.prod(kernel), output)


def equal_windows(x: Tensor, size: list[int]) -> list[int] | None:
    """The windows that divide images into so many; none where they would have to differ."""
    kernel = [have // want for have, want in zip(x.shape[-2:], size, strict=True)]
    return kernel if [want * count for want, count in zip(size, kernel, strict=True)] == list(x.shape[-2:]) else None
