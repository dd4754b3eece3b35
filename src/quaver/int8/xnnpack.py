"""XNNPACK's integer arithmetic: what a mobile program computes, bit for bit.

XNNPACK rounds the output of every op, bias included, and rounds it once: `conv` and `linear` add an int32 bias to the sum
of products and multiply by one float32 per channel; a sum of two tensors is fixed-point. Integers come and go as float32,
less their zero point; steps are float32 numbers in Python floats.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quaver.int8.kernels import Operation, fixed_integers
from quaver.int8.rounded_once import Output

BIAS_LIMIT = 2**30
"""A bias of this many steps leaves as much room again for the sum of products in 32 bits."""


def single(value: float) -> float:
    """``value`` as float32 has it. One operation on such numbers in Python's floats, made single again, is float32's own.

    >>> single(0.1)
    0.10000000149011612
    """
    return torch.tensor(value, dtype=torch.float32).item()


def fitted(weight: Tensor, weight_scale: Tensor | float, bias: Tensor, x_scale: float, axis: int) -> tuple[Tensor, Tensor]:
    """Integers and steps of a weight, with larger steps, and so smaller integers, where a channel's bias would not fit.

    Batch norm can leave a channel with next to no weights and an ordinary bias, which is then worth more steps of the sum
    of products than 32 bits count. All that such a channel computes from its input is far less than a step of its output.
    """
    steps = _per_channel(weight_scale, bias)
    excess = bias.float().abs() / (steps * x_scale) / BIAS_LIMIT
    if not bool((excess > 1).any()):
        return weight, steps
    factors = excess.log2().ceil().clamp_min(0).exp2()
    return (weight / _along(axis, factors, weight)).round(), steps * factors


def biased(
    operation: Operation,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    x_scale: float,
    weight_scale: Tensor | float,
    axes: tuple[int, int],
    arguments: tuple[Any, ...],
    output: Output,
) -> Tensor:
    """A convolution or linear layer; ``axes`` are the channels' in weight and output, ``arguments`` are the op's own."""
    with torch.autocast(x.device.type, enabled=False):
        if bias is None:
            total = operation(x, weight, None, *arguments)
            steps = _per_channel(weight_scale, total) * x_scale
        else:
            weight, steps = fitted(weight, weight_scale, bias, x_scale, axes[0])
            steps = steps * x_scale
            total = operation(x, weight, None, *arguments)
            total += _along(axes[1], (bias.float() * (1.0 / steps)).round_(), total)
        return output.of(total, _along(axes[1], steps / torch.full_like(steps, output.scale), total))


def added(x: Tensor, y: Tensor, x_scale: float, y_scale: float, output: Output) -> Tensor:
    """``x + y`` in fixed point: multipliers of 21 bits, ties upwards. With a negative step for ``y`` it is a difference."""
    ratios = single(x_scale / output.scale), single(y_scale / output.scale)
    shift = 21 - math.frexp(max(map(abs, ratios)))[1]
    first, second = (round(ratio * 2.0**shift) for ratio in ratios)
    total = x.int() * first + y.int() * second + (1 << (shift - 1))
    return (total >> shift).clamp_(output.low, output.high).float()


def multiplied(x: Tensor, y: Tensor, x_scale: float, y_scale: float, output: Output) -> Tensor:
    """``x · y``."""
    return output.of(x * y, single(single(x_scale * y_scale) / output.scale))


def mean(x: Tensor, scale: float, dims: list[int], keepdim: bool, output: Output) -> Tensor:
    """A mean over height and width of a batch of images; over anything else, it is computed in float."""
    if x.dim() != 4 or sorted(dim % 4 for dim in dims) != [2, 3]:
        return fixed_integers(x.mean(dims, keepdim) * scale, *output)
    count = x.shape[2] * x.shape[3]
    return output.of(x.sum(dims, keepdim), single(single(scale / output.scale) / count))


def average(
    x: Tensor, scale: float, kernel: list[int], stride: list[int], padding: list[int], divisor: int, output: Output
) -> Tensor:
    """An average pool, padding counted: exported as a depthwise convolution with weights of 1 and a step of 1/divisor."""
    total = F.avg_pool2d(x, kernel, stride, padding, divisor_override=1)
    return output.of(total, single(single(scale * single(1 / divisor)) / output.scale))


def adaptive_average(x: Tensor, scale: float, size: list[int], output: Output) -> Tensor:
    """An average pool to images of a size: a mean, or a plain pool, or, where the windows differ, computed in float."""
    if size == [1, 1]:
        return mean(x, scale, [-2, -1], True, output)
    kernel = [have // want for have, want in zip(x.shape[-2:], size, strict=True)]
    if [want * count for want, count in zip(size, kernel, strict=True)] != list(x.shape[-2:]):
        return fixed_integers(torch.ops.aten.adaptive_avg_pool2d(x, size) * scale, *output)
    return average(x, scale, kernel, kernel, [0, 0], math.prod(kernel), output)


def _per_channel(scale: Tensor | float, like: Tensor) -> Tensor:
    """Steps as a tensor: one for all channels, or one each."""
    return torch.as_tensor(scale, dtype=torch.float32, device=like.device)


def _along(axis: int, values: Tensor, like: Tensor) -> Tensor:
    shape = [1] * like.dim()
    shape[axis] = -1
    return values.view(shape)
