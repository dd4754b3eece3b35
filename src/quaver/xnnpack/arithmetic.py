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

Zeros = tuple[int, int]
"""The zero points that an op's input and its output are stored with."""


def added(x: Tensor, y: Tensor, x_scale: float, y_scale: float, output: Output) -> Tensor:
    """``x + y`` in fixed point: multipliers of 21 bits, ties upwards. With a negative step for ``y`` it is a difference."""
    ratios = single(x_scale / output.scale), single(y_scale / output.scale)
    shift = 21 - math.frexp(max(map(abs, ratios)))[1]
    first, second = (round(ratio * 2.0**shift) for ratio in ratios)
    total = x.int() * first + y.int() * second + (1 << (shift - 1))
    return (total >> shift).clamp_(output.low, output.high).float()


def mean(x: Tensor, scale: float, dims: list[int], keepdim: bool, zeros: Zeros, output: Output) -> Tensor:
    """A mean over height and width of a batch of images; over anything else, it is computed in float.

    The sum is that of the integers as stored, times a float32; what the zero points make of it is added after that. Near a
    tie, a large product loses by it what would tell the two sides apart.
    """
    if x.dim() != 4 or sorted(dim % 4 for dim in dims) != [2, 3]:
        return fixed_integers(x.mean(dims, keepdim) * scale, *output)
    count, (own, given) = x.shape[2] * x.shape[3], zeros
    multiplier = single(single(scale / output.scale) * single(1 / count))
    shift = single(given - single(count * own * multiplier))
    stored = ((x.sum(dims, keepdim) + count * own) * multiplier + shift).round_()
    return (stored - given).clamp_(output.low, output.high)


def average(
    x: Tensor, scale: float, kernel: list[int], stride: list[int], padding: list[int], divisor: int, output: Output
) -> Tensor:
    """An average pool, padding counted: exported as a depthwise convolution with weights of 1 and a step of 1/divisor."""
    total = F.avg_pool2d(x, kernel, stride, padding, divisor_override=1)
    return output.of(total, single(single(scale * single(1 / divisor)) / output.scale))


def adaptive_average(x: Tensor, scale: float, size: list[int], zeros: Zeros, output: Output) -> Tensor:
    """An average pool to images of a size: a mean, or a plain pool, or, where the windows differ, computed in float."""
    if size == [1, 1]:
        return mean(x, scale, [-2, -1], True, zeros, output)
    kernel = equal_windows(x, size)
    if kernel is None:
        return fixed_integers(torch.ops.aten.adaptive_avg_pool2d(x, size) * scale, *output)
    return average(x, scale, kernel, kernel, [0, 0], math.prod(kernel), output)


def equal_windows(x: Tensor, size: list[int]) -> list[int] | None:
    """The windows that divide images into so many; none where they would have to differ."""
    kernel = [have // want for have, want in zip(x.shape[-2:], size, strict=True)]
    return kernel if [want * count for want, count in zip(size, kernel, strict=True)] == list(x.shape[-2:]) else None
