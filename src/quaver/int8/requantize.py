"""What XNNPACK and ONNX Runtime share: a sum of products with an int32 bias, times one float32 per channel, rounded once."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from quaver.int8.kernels import Operation, rounds

BIAS_LIMIT = 2**30
"""A bias of this many steps leaves as much room again for the sum of products in 32 bits."""
WEIGHT_LIMIT = 64
"""Integers are multiplied up to this and no further: 255 times a pair of them still fits into 16 bits, which processors
without VNNI add it in."""


class Output(NamedTuple):
    """The grid an op rounds to: its step, and the first and last integer that it, or a clamp behind the op, allows."""

    scale: float
    low: int
    high: int

    def of(self, total: Tensor, multiplier: Tensor | float) -> Tensor:
        """``total · multiplier``, to the nearest integer, ties to even."""
        return (total * multiplier).round_().clamp_(self.low, self.high)


class Unrounded(Output):
    """A grid between whose ends an op's result is left as it is."""

    __slots__ = ()

    def of(self, total: Tensor, multiplier: Tensor | float) -> Tensor:
        """``total · multiplier``."""
        return (total.double() * multiplier).clamp_(self.low, self.high)


def single(value: float) -> float:
    """``value`` as float32 has it. One operation on such numbers in Python's floats, made single again, is float32's own.

    >>> single(0.1)
    0.10000000149011612
    """
    return torch.tensor(value, dtype=torch.float32).item()


def fitted(weight: Tensor, weight_scale: Tensor | float, bias: Tensor, x_scale: float, axis: int) -> tuple[Tensor, Tensor]:
    """Integers and steps of a weight, by powers of two finer or coarser, so that the steps of the sum count the bias well.

    A weight of few bits has large steps, in which its bias would be rounded to next to nothing: with larger integers and
    smaller steps it stands for the same. On the other side, batch norm can leave a channel with next to no weights and an
    ordinary bias, which is then worth more steps than 32 bits count. Such a channel gets larger steps, and so smaller
    integers: all that it computes from its input is far less than a step of its output.
    """
    steps = _per_channel(weight_scale, bias)
    room = (WEIGHT_LIMIT / weight.abs().max().clamp_min(1)).log2().floor().clamp_min(0)
    excess = (bias.float().abs() / (steps * x_scale) / BIAS_LIMIT).log2().ceil()
    exponents = torch.maximum(excess, -room)
    if not bool(exponents.any()):
        return weight, steps
    factors = exponents.exp2()
    return (weight / along(axis, factors, weight)).round(), steps * factors


def sum_of_products(
    operation: Operation,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    x_scale: float,
    weight_scale: Tensor | float,
    axes: tuple[int, int],
    arguments: tuple[Any, ...],
) -> tuple[Tensor, Tensor]:
    """What a layer adds up, its bias included, in numbers like ``x``'s; and the steps of its weight that were used."""
    steps = _per_channel(weight_scale, x)
    if bias is not None:
        weight, steps = fitted(weight, steps, bias, x_scale, axes[0])
    with torch.autocast(x.device.type, enabled=False):
        total = operation(x, weight.to(x.dtype), None, *arguments)
    if bias is not None:
        total += along(axes[1], (bias.float() * (1.0 / (steps * x_scale))).round_(), total)
    return total, steps


def _biased_in_steps(*arguments: Any) -> Tensor:
    return biased(*arguments[:-1], Unrounded(*arguments[-1]))


@rounds(_biased_in_steps)
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
    total, steps = sum_of_products(operation, x, weight, bias, x_scale, weight_scale, axes, arguments)
    steps = steps * x_scale
    return output.of(total, along(axes[1], steps / torch.full_like(steps, output.scale), total))


def _multiplied_in_steps(*arguments: Any) -> Tensor:
    return multiplied(*arguments[:-1], Unrounded(*arguments[-1]))


@rounds(_multiplied_in_steps)
def multiplied(x: Tensor, y: Tensor, x_scale: float, y_scale: float, output: Output) -> Tensor:
    """``x · y``."""
    return output.of(x * y, single(single(x_scale * y_scale) / output.scale))


def _per_channel(scale: Tensor | float, like: Tensor) -> Tensor:
    """Steps as a tensor: one for all channels, or one each."""
    return torch.as_tensor(scale, dtype=torch.float32, device=like.device)


def along(axis: int, values: Tensor, like: Tensor) -> Tensor:
    """Values of channels, to be broadcast over a tensor whose channels are on this axis."""
    shape = [1] * like.dim()
    shape[axis] = -1
    return values.view(shape)
