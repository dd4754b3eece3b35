"""Integer kernels in float32: convolve integers, rescale once, as oneDNN and XNNPACK do.

Products and sums of 8-bit integers are exact in float32 up to 2^24, so no rounding happens before the one rescaling at the
end. (A sum beyond 2^24 would need some 500 products that all saturate with one sign; it is then off by one part in 2^24.)
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from quaver.graph.patterns import two
from quaver.grid import Grid
from quaver.quantizers import Quantizer
from quaver.quantizers.arithmetic import Norm, StorageFormat, Sums, as_stored, round_between

Operation = Callable[..., Tensor]
IN_STEPS: dict[Operation, Operation] = {}
"""For kernels that round: what gives, for the same arguments, the value that they round, in steps."""


def rounds(in_steps: Operation) -> Callable[[Operation], Operation]:
    """Declare what a kernel rounds: to compare an engine's integers with the value before it was rounded."""

    def declared(kernel: Operation) -> Operation:
        IN_STEPS[kernel] = in_steps
        return kernel

    return declared


def in_steps(
    x: Tensor, scale: float, low: int, high: int, _: bool = False, unit: Tensor | float | None = None, *__: Any
) -> Tensor:
    """A tensor in steps, not rounded; one that is counted in a unit of its own is brought out of it."""
    value = x.double() if unit is None else x.double() * unit
    return (value / scale).clamp(low, high)


def quantizer_integers(
    quantizer: Quantizer,
    x: Tensor,
    shifted: bool,
    unit: Tensor | float | None = None,
    fused_add: bool = False,
    norm: Norm | None = None,
    sums: Sums | None = None,
) -> tuple[Tensor, Tensor]:
    """Integers and step by a quantizer as it is now."""
    return quantizer.integers(x, StorageFormat(shifted, unit, fused_add, norm, sums))


def stored_integers(weight: Tensor) -> Tensor:
    """Integers that a frozen program stores, as float32 or int8."""
    return weight.float()


@rounds(in_steps)
def fixed_integers(x: Tensor, scale: float, low: int, high: int) -> Tensor:
    """Integers of ``x`` by a step that is fixed."""
    return round_between(x.float(), scale, low, high)


@rounds(in_steps)
def divided_integers(x: Tensor, scale: float, low: int, high: int) -> Tensor:
    """`fixed_integers` by a division, as ONNX defines it: ``x / scale``, to the nearest integer, ties to even."""
    # a number or a tensor without dimensions would be turned into a product on some devices
    return (x.float() / torch.tensor([scale], dtype=torch.float32, device=x.device)).round_().clamp_(low, high)


@rounds(in_steps)
def stored_activation(
    x: Tensor,
    scale: float,
    low: int,
    high: int,
    shifted: bool,
    unit: Tensor | float | None = None,
    fused_add: bool = False,
    norm: Norm | None = None,
    sums: Sums | None = None,
) -> Tensor:
    """Integers of an activation by a step that is fixed, in the steps in which an engine comes to them."""
    grid = _engine_grid(low, high)
    if grid is None:  # written by hand
        return round_between(x if unit is None else x * unit, scale, low, high)
    return as_stored(x.float(), scale, grid, StorageFormat(shifted, unit, fused_add, norm, sums))


@cache
def _engine_grid(low: int, high: int) -> Grid | None:
    """The grid of an engine's activations that keeps to these ends; None where it has not all of them."""
    whole = Grid(8, low < 0, narrow=False)
    if low < 0 and high > whole.high and high - low == whole.high - whole.low:
        return replace(whole, bounds=(low, high))
    return replace(whole, bounds=(low, high)) if whole.low <= low and high <= whole.high else None


def added(x: Tensor, integers: Tensor, scale: Tensor | float, shifted: bool) -> Tensor:
    """A convolution's output and a quantized shortcut, added in steps of the shortcut: what OpenVINO fuses an addition to.

    Where the shortcut is stored shifted by 128, the convolution's output is shifted to meet it.
    """
    scale = torch.as_tensor(scale, dtype=torch.float32, device=x.device)
    if not shifted:
        return x.float() * (1 / scale) + integers
    return (x.float() - 128 * scale) * (1 / scale) + (integers + 128)


def sum_of_integers(
    x: Tensor, x_scale: Tensor | float, x_zero: int, y: Tensor, y_scale: Tensor | float, y_zero: int, as_floats: bool
) -> Tensor:
    """Two quantized tensors, added in steps of the second: ``(x + x_zero − zero)·ratio + (y + y_zero)``, ``zero`` the zero
    points of both in steps of ``x``.

    ``as_floats``: what rounds ``x`` gives it in these steps, between the ends of its range.
    """
    x_scale, y_scale = (torch.as_tensor(scale, dtype=torch.float32, device=x.device) for scale in (x_scale, y_scale))
    ratio, zero = x_scale / y_scale, y_zero * y_scale / x_scale
    if as_floats:
        return _rounded_to_floats(x, x_zero, zero, ratio) + (y + y_zero)
    return (x + x_zero - (x_zero + zero)) * ratio + (y + y_zero)


def product_of_integers(
    x: Tensor, x_scale: Tensor | float, x_zero: int, y: Tensor, y_scale: Tensor | float, as_floats: bool
) -> Tensor:
    """Two quantized tensors, multiplied: ``x·(x_scale·y_scale)·y``. ``as_floats``: as in `sum_of_integers`."""
    scale = torch.as_tensor(x_scale, dtype=torch.float32, device=x.device) * y_scale
    return (_rounded_to_floats(x, x_zero, 0.0, scale) if as_floats else x * scale) * y


def _rounded_to_floats(x: Tensor, x_zero: int, zero: Tensor | float, step: Tensor) -> Tensor:
    """``(x − zero)·step`` as a kernel gives it that rounds and goes on in floats: by the ends of the range."""
    low, high = ((bound - x_zero - zero) * step for bound in (0, 255))
    return ((x.double() + x_zero) * ((high - low) / torch.full_like(low, 255)).double() + low.double()).float()


def fold_batch_norm(
    scale: Tensor,
    bias: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Step and bias of a convolution that does its batch norm as well: ``scale·γ/σ`` and ``(bias − μ)·γ/σ + β``.

    The integers of the weight stay as they were trained. Where γ < 0 the step is negative; freezing turns the sign over
    to the integers.
    """
    factor = torch.rsqrt(variance.float() + eps)
    if gamma is not None:
        factor = gamma.float() * factor
    shift = (-mean.float() if bias is None else bias.float() - mean.float()) * factor
    return scale * factor, shift if beta is None else shift + beta.float()


def no_change(x: Tensor) -> Tensor:
    """The factor of a norm that does nothing."""
    return torch.ones(1, dtype=torch.float32, device=x.device)


def rescaled(
    operation: Operation,
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor | float,
    weight_scale: Tensor | float,
    bias: Tensor | None,
    channels: int,
    arguments: tuple[Any, ...],
) -> Tensor:
    """A convolution or linear layer on integers, then one multiplication and one addition per channel.

    ``channels`` is the output's channel axis; ``arguments`` are the op's own after the bias.
    """
    with torch.autocast(x.device.type, enabled=False):
        return rescale(operation(x, weight, None, *arguments), x_scale, weight_scale, bias, channels)


def rescale(
    total: Tensor, x_scale: Tensor | float, weight_scale: Tensor | float, bias: Tensor | None, channels: int
) -> Tensor:
    """What the sums of products of integers stand for, and the bias."""
    result = total * _along(channels, x_scale * weight_scale, total)
    return result if bias is None else result + _along(channels, bias.float(), total)


def sums_of_products(
    operation: Operation,
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor | float,
    weight_scale: Tensor | float,
    bias: Tensor | None,
) -> Sums:
    """A linear layer on integers that is not rescaled yet."""
    with torch.autocast(x.device.type, enabled=False):
        factor = torch.as_tensor(x_scale * weight_scale, dtype=torch.float32, device=x.device)
        return Sums(operation(x, weight, None), factor, bias)


def rescaled_sums(sums: Sums) -> Tensor:
    """`rescaled` of what a linear layer came to."""
    return rescale(sums.total, 1.0, sums.factor, sums.bias, -1)


def matrix_product(operation: Operation, x: Tensor, y: Tensor, x_scale: Tensor | float, y_scale: Tensor | float) -> Tensor:
    """A matrix product of integers, rescaled once; ``y`` may have a step per column."""
    with torch.autocast(x.device.type, enabled=False):
        return operation(x, y) * (x_scale * y_scale)


def first_largest(x: Tensor, count: int, dim: int = -1, largest: bool = True, _: bool = True) -> tuple[Tensor, Tensor]:
    """The largest values and their places, of equal ones the first, as files have it; PyTorch may take any of them."""
    values, places = x.sort(dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, count), places.narrow(dim, 0, count)


def hard_sigmoid(x: Tensor) -> Tensor:
    """``x/6 + 1/2`` between 0 and 1, in the order in which oneDNN computes it."""
    return (x * torch.tensor(1 / 6, dtype=torch.float32) + 0.5).clamp(0, 1)


def hard_swish(x: Tensor) -> Tensor:
    """``x`` times its hard sigmoid. PyTorch multiplies first and divides last: another last bit."""
    return x * hard_sigmoid(x)


def average(
    operation: Operation, x: Tensor, scale: Tensor | float, arguments: tuple[Any, ...], name: str, shifted: bool
) -> Tensor:
    """An average of integers, then the step: an average that ends in .5 stays exactly there, as it does in an engine.

    A pool over windows multiplies sums by 1/count, where other averages divide. What is stored ``shifted`` is averaged with
    its 128, which is then taken off. A pool that reaches beyond the edge averages what the integers stand for, and so does
    one that has windows of several sizes.
    """
    if name == "adaptive_avg_pool2d" and _is_uneven(x, *arguments):
        return _uneven_average(x * scale, two(arguments[0]))
    windows = WINDOWS[name](x, *arguments) if name in WINDOWS else None
    zero = 128.0 if shifted else 0.0
    if windows is None:
        return (operation(x + zero, *arguments) - zero if shifted else operation(x, *arguments)) * scale
    if windows.ceil_mode:
        return operation(x * scale, *arguments)
    total = F.avg_pool2d(x, windows.kernel, windows.stride, windows.padding, divisor_override=1)
    count: Tensor | float = float(math.prod(windows.kernel))
    if any(windows.padding) and (windows.count_include_pad or windows.divisor is not None):
        zero = 0.0  # the zeros around are a tensor of their own then, which no convolution reads
    elif any(windows.padding):
        ones = x.new_ones(1, 1, *x.shape[-2:])
        count = F.avg_pool2d(ones, windows.kernel, windows.stride, windows.padding, divisor_override=1)
    result = ((total + zero * count) * (1.0 / count) - zero) * scale
    return result if windows.divisor is None else result * (math.prod(windows.kernel) / windows.divisor)


class Windows(NamedTuple):
    """What an average pool goes over."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int | None = None


def _windows(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, *others: Any) -> Windows:
    return Windows(two(kernel), two(stride or kernel), two(padding), *others)


def _adaptive_windows(x: Tensor, output_size: Any) -> Windows | None:
    """Those of an adaptive pool; None where it is a mean over all, or has windows of several sizes."""
    sizes, wanted = x.shape[-2:], two(output_size)
    if wanted == [1, 1] or _is_uneven(x, output_size):
        return None
    kernel = [size // count for size, count in zip(sizes, wanted, strict=True)]
    return Windows(kernel, kernel, [0, 0])


def _is_uneven(x: Tensor, output_size: Any) -> bool:
    """Whether an adaptive pool has windows of several sizes."""
    return any(size % count for size, count in zip(x.shape[-2:], two(output_size), strict=True))


def _uneven_average(x: Tensor, counts: list[int]) -> Tensor:
    """The average of each window: one value after the other, row by row, times 1/count.

    That is how OpenVINO has such a pool: it is written as sums of values.
    """
    rows, columns = (
        [range(place * size // count, -(-(place + 1) * size // count)) for place in range(count)]
        for size, count in zip(x.shape[-2:], counts, strict=True)
    )
    lines = [[_total(x, row, column) * (1.0 / (len(row) * len(column))) for column in columns] for row in rows]
    return torch.stack([torch.stack(line, -1) for line in lines], -2)


def _total(x: Tensor, rows: range, columns: range) -> Tensor:
    first, *others = [x[..., row, column] for row in rows for column in columns]
    for value in others:
        first = first + value
    return first


WINDOWS: dict[str, Callable[..., Windows | None]] = {"avg_pool2d": _windows, "adaptive_avg_pool2d": _adaptive_windows}
"""Averages over windows, by name."""


def _along(axis: int, values: Tensor | float, like: Tensor) -> Tensor | float:
    if not isinstance(values, Tensor) or values.dim() == 0:
        return values
    if values.numel() != like.shape[axis]:  # a grouped transposed convolution: its groups share the weight's steps
        values = values.repeat(like.shape[axis] // values.numel())
    shape = [1] * like.dim()
    shape[axis] = -1
    return values.view(shape)
