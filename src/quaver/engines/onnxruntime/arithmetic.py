"""ONNX Runtime's integer arithmetic: what a program for it computes.

Convolutions, linear layers and products as in `requantize`. It quantizes by a division, where others multiply, and adds in
float32. Integers come and go as float32, less their zero point.
"""

from torch import Tensor

from quaver.int8.kernels import in_steps, rounds
from quaver.int8.requantize import Output, single

ZERO = 128
"""Signed integers are stored with this added."""


def _sum_in_steps(x: Tensor, y: Tensor, x_scale: float, y_scale: float, _: tuple[int, ...], output: Output) -> Tensor:
    return in_steps(x.double() * x_scale + y.double() * y_scale, *output)


@rounds(_sum_in_steps)
def added(x: Tensor, y: Tensor, x_scale: float, y_scale: float, zeros: tuple[int, int, int], output: Output) -> Tensor:
    """``x + y`` in float32, on the integers as they are stored; ``zeros`` are the zero points of both and of the result."""
    first, second = single(x_scale / output.scale), single(y_scale / output.scale)
    x_zero, y_zero, zero = zeros
    constant = single(zero - single(single(first * x_zero) + single(second * y_zero)))
    total = (x + x_zero) * first + ((y + y_zero) * second + constant)
    return total.round_().sub_(zero).clamp_(output.low, output.high)
