"""A mobile program's graph as LiteRT's reference kernels compute it, bit for bit.

A sum of products in 32 bits is multiplied by a fixed-point number: its mantissa of 31 bits (the upper half of the doubled
product, ties upwards), then a shift to the right, rounded again, ties away from zero. A linear layer alone is multiplied
by a float32 (LiteRT 2.3; on microcontrollers it is fixed-point, too). Integers come and go as float32, less their zero
point; a step is a float32 number in a Python float.
"""

import math
from typing import Any

import torch
from torch import Tensor

from quaver.int8.kernels import Operation
from quaver.int8.requantize import Output, along, single, sum_of_products
from quaver.xnnpack.arithmetic import Zeros, equal_windows
from quaver.xnnpack.lowering import XNNPACKLowering, exact_nodes

aten = torch.ops.aten
SUM_BITS = 20  # by which operands of a sum are shifted to the left before they are rescaled


def multiplier(ratio: float) -> tuple[int, int]:
    """A ratio as mantissa and exponent: ``mantissa · 2^(exponent - 31)``.

    >>> multiplier(0.75)
    (1610612736, 0)
    """
    mantissa, exponent = math.frexp(ratio)
    fixed = math.floor(mantissa * 2**31 + 0.5)
    if fixed == 2**31:
        fixed, exponent = fixed // 2, exponent + 1
    return (0, 0) if exponent < -31 else (fixed, exponent)


def rescaled(total: Tensor, mantissa: Tensor | int, exponent: Tensor | int) -> Tensor:
    """Integers (int64) times a fixed-point number, rounded twice, as integers."""
    exponent = torch.as_tensor(exponent, device=total.device)
    shifted = total << exponent.clamp_min(0)
    product = shifted * mantissa
    high = torch.div(product + torch.where(product >= 0, 1 << 30, 1 - (1 << 30)), 1 << 31, rounding_mode="trunc")
    right = (-exponent).clamp_min(0)
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0).long()).long()


def clamped(whole: Tensor, output: Output) -> Tensor:
    """Integers between the ends of a grid, as float32."""
    return whole.clamp(output.low, output.high).float()


def rounded(x: Tensor, scale: float, low: int, high: int) -> Tensor:
    """Integers of what was computed in float: a division, ties away from zero."""
    return away_from_zero(x / scale).clamp(low, high)


def away_from_zero(x: Tensor) -> Tensor:
    """The nearest integers, of two the one farther from zero."""
    return (x.abs() + 0.5).floor().copysign(x)


def layer(
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
    total, steps = sum_of_products(operation, x.double(), weight, bias, x_scale, weight_scale, axes, arguments)
    ratios = x_scale * steps.double() / output.scale
    if operation is aten.linear.default:
        return away_from_zero(total.float() * ratios.float()).clamp(output.low, output.high)
    mantissas, exponents = torch.tensor([multiplier(ratio) for ratio in ratios.reshape(-1).tolist()], device=x.device).T
    fixed = (along(axes[1], part, total) for part in (mantissas, exponents))
    return clamped(rescaled(total.long(), *fixed), output)


def added(x: Tensor, y: Tensor, x_scale: float, y_scale: float, output: Output) -> Tensor:
    """``x + y``, each rescaled to half the larger step. With a negative step for ``y`` it is a difference."""
    widest = 2 * max(x_scale, abs(y_scale))
    terms = [
        rescaled(value.long() << SUM_BITS, *multiplier(abs(scale) / widest)) * (1 if scale > 0 else -1)
        for value, scale in ((x, x_scale), (y, y_scale))
    ]
    return clamped(rescaled(terms[0] + terms[1], *multiplier(widest / ((1 << SUM_BITS) * output.scale))), output)


def multiplied(x: Tensor, y: Tensor, x_scale: float, y_scale: float, output: Output) -> Tensor:
    """``x · y``."""
    ratio = single(single(x_scale * y_scale) / output.scale)
    return clamped(rescaled(x.long() * y.long(), *multiplier(ratio)), output)


def mean(x: Tensor, scale: float, dims: list[int], keepdim: bool, zeros: Zeros, output: Output) -> Tensor:
    """A mean over height and width of a batch of images; over anything else, it is computed in float."""
    if x.dim() != 4 or sorted(dim % 4 for dim in dims) != [2, 3]:
        return rounded(x.mean(dims, keepdim) * scale, *output)
    count = x.shape[2] * x.shape[3]
    mantissa, exponent = multiplier(single(scale / output.scale))
    bits = min(count.bit_length() - 1, 32, 31 + exponent)  # the mantissa is made larger as far as the division allows
    mantissa, exponent = (mantissa << bits) // count, exponent - bits
    return clamped(rescaled(x.long().sum(dims, keepdim), mantissa, exponent), output)


def average(
    x: Tensor, scale: float, kernel: list[int], stride: list[int], padding: list[int], divisor: int, output: Output
) -> Tensor:
    """An average pool, padding counted: written as a depthwise convolution with weights of 1 and a step of 1/divisor."""
    weight = torch.ones(x.shape[1], 1, *kernel, device=x.device)
    arguments = (stride, padding, [1, 1], x.shape[1])
    return layer(aten.conv2d.default, x, weight, None, scale, single(1 / divisor), (0, 1), arguments, output)


def adaptive_average(x: Tensor, scale: float, size: list[int], zeros: Zeros, output: Output) -> Tensor:
    """An average pool to images of a size: a mean, or, where windows are equal, a plain pool; else computed in float."""
    if size == [1, 1]:
        return mean(x, scale, [-2, -1], True, zeros, output)
    kernel = equal_windows(x, size)
    if kernel is None:
        return rounded(aten.adaptive_avg_pool2d(x, size) * scale, *output)
    return average(x, scale, kernel, kernel, [0, 0], math.prod(kernel), output)


class ReferenceLowering(XNNPACKLowering):
    """Layers, sums, products and means, each rounded as the reference kernels round it."""

    quantized = staticmethod(rounded)
    layer = staticmethod(layer)
    multiplied = staticmethod(multiplied)
    added = staticmethod(added)
    average = staticmethod(average)
    adaptive_average = staticmethod(adaptive_average)
    mean = staticmethod(mean)


lowering = ReferenceLowering

__all__ = ["exact_nodes", "lowering"]
