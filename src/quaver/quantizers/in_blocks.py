"""The one rounding rule on the CPU, a block of a tensor at a time: what is computed on the way stays in the cache.

The very operations of `quaver.quantizers.arithmetic`, in the same order. On the way, while the block is at hand, it leaves
what backward keeps: the integers, of one byte each, and a bit for each value that gradients pass.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from quaver.grid import Grid
from quaver.quantizers import kept_integers
from quaver.quantizers.eager_calls import in_a_row, is_eager

BLOCK = 1 << 17
"""Values in a block, for each of torch's threads."""
PLACES = 2.0 ** torch.arange(8)
BITS = (1 << torch.arange(8)).to(torch.uint8)[:, None]


class Clamp(NamedTuple):
    """An activation in front, of which there is nothing left but where it ends: a ReLU, a ReLU6."""

    low: float
    high: float

    def __call__(self, x: Tensor) -> Tensor:
        """The activation by itself."""
        return x.relu() if self == RELU else torch.nn.functional.hardtanh(x, self.low, self.high)


RELU, RELU6 = Clamp(0.0, math.inf), Clamp(0.0, 6.0)


class Rounded(NamedTuple):
    """Values on the grid; their integers, and the bits of those that gradients pass, where they are asked for."""

    values: Tensor
    integers: Tensor | None
    passing: Tensor | None


def takes(x: Tensor, scale: Tensor) -> bool:
    """Whether a tensor can be rounded so: on the CPU, with one step that is not learned."""
    return not scale.requires_grad and scale.dim() == 0 and x.is_cpu and is_eager(x)


def fake_quantize(x: Tensor, scale: Tensor, grid: Grid, pass_through: bool, clamp: Clamp | None = None) -> Tensor:
    """`arithmetic.fake_quantize` of ``x``, or of what an activation makes of it."""
    learning = torch.is_grad_enabled() and x.requires_grad
    masked = learning and not (pass_through and clamp is None)
    dtype = kept_integers.integer_type(grid) if kept_integers.are_wanted() else None
    with torch.no_grad():
        done = rounded(x, scale, grid, pass_through, clamp, masked, dtype)
    value: Any = _Passing.apply(x, done) if learning else done.values  # type: ignore[no-untyped-call]
    return kept_integers.keep(value, done.integers, scale)


class _Passing(torch.autograd.Function):
    """Forward: what was rounded before. Backward: the gradient where the bit is set, 0 elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, done: Rounded) -> Tensor:
        ctx.stride = done.values.stride()
        if done.passing is not None:
            ctx.save_for_backward(done.passing)
        return done.values

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        saved = ctx.saved_tensors
        return (where(saved[0], gradient, ctx.stride) if saved else gradient), None


def rounded(
    x: Tensor,
    scale: Tensor,
    grid: Grid,
    pass_through: bool,
    clamp: Clamp | None,
    masked: bool,
    integer_type: torch.dtype | None,
) -> Rounded:
    """All of a tensor: rounded, with its integers if they have a type, and its bits if it is ``masked``.

    No bits: gradients pass everywhere. No integers: there are NaN among the values, which no integer stands for.
    """
    x = in_a_row(x)
    values, inverse, count = torch.empty_like(x), scale.reciprocal(), x.numel()
    low, high = (grid.low, grid.high) if clamp is None else _ends(grid, clamp, float(inverse))
    first, last = _passing(grid, pass_through, clamp, float(inverse))
    integers = None if integer_type is None else torch.empty_like(x, dtype=integer_type)
    size = min(count, _block())
    steps, wide, ones, passing = (
        x.new_empty(wanted * -(-size // 8) * 8, dtype=torch.float32)
        for wanted in (1, x.dtype != torch.float32, masked, masked)
    )
    whole = torch.empty(size * (integer_type == torch.uint8), dtype=torch.int32)
    bits = torch.empty(masked * sum(-(-(stop - start) // 8) for start, stop in _blocks(count)), dtype=torch.uint8)
    ones.fill_(1)
    total, filled = 0.0, 0
    source, result, stored = _row(x), _row(values), None if integers is None else _row(integers)
    for start, stop in _blocks(count):
        length = stop - start
        given = source[start:stop]
        if wide.numel():
            given = wide[:length].copy_(given)
        counted = torch.mul(given, inverse, out=steps[:length])
        if masked:
            octets = -(-length // 8)
            _mark(counted if clamp is None else given, first, last, ones[:length], passing[:length])
            passing[length : octets * 8] = 1
            places = torch.mv(passing[: octets * 8].view(8, octets).t(), PLACES)
            bits[filled : filled + octets].copy_(places)
            filled += octets
        counted.round_().clamp_(low, high)
        if stored is not None:
            total += float(counted.sum())
            stored[start:stop].copy_(whole[:length].copy_(counted) if whole.numel() else counted)
        if x.dtype == torch.float32:
            torch.mul(counted, scale, out=result[start:stop])
        else:
            result[start:stop].copy_(counted.mul_(scale))
    all_pass = masked and not kept_integers.saving_is_hooked() and bool(bits.amin() == 255)
    return Rounded(values, None if math.isnan(total) else integers, bits if masked and not all_pass else None)


def _mark(x: Tensor, low: float, high: float, ones: Tensor, passing: Tensor) -> None:
    """1 where gradients pass, 0 elsewhere, by torch's own backward of the clamp: infinity is not beyond a ReLU."""
    if math.isinf(high):
        torch.ops.aten.threshold_backward(ones, x, low, grad_input=passing)
    else:
        torch.ops.aten.hardtanh_backward(ones, x, low, high, grad_input=passing)


def where(passing: Tensor, gradient: Tensor, stride: tuple[int, ...]) -> Tensor:
    """The gradient where a bit of a tensor laid out like this is set, 0 elsewhere."""
    if gradient.stride() != stride:
        gradient = gradient.new_empty_strided(gradient.shape, stride).copy_(gradient)
    result, count, filled = torch.empty_like(gradient), gradient.numel(), 0
    source, target = _row(gradient), _row(result)
    octets = -(-min(count, _block()) // 8)
    spread, mask = torch.empty(8 * octets, dtype=torch.uint8), gradient.new_empty(8 * octets)
    for start, stop in _blocks(count):
        length = stop - start
        octets = -(-length // 8)
        alone = torch.bitwise_and(passing[filled : filled + octets], BITS, out=spread[: 8 * octets].view(8, octets))
        kept = mask[: 8 * octets].copy_(alone.view(-1))[:length]
        torch.ops.aten.threshold_backward(source[start:stop], kept, 0.0, grad_input=target[start:stop])
        filled += octets
    return result


def _row(x: Tensor) -> Tensor:
    return x.as_strided((x.numel(),), (1,))


def _block() -> int:
    return BLOCK * torch.get_num_threads()


def _blocks(count: int) -> Iterator[tuple[int, int]]:
    size = _block()
    return ((start, min(start + size, count)) for start in range(0, count, size))


def _ends(grid: Grid, clamp: Clamp, inverse: float) -> tuple[float, float]:
    """Between which integers the rounded values of an activation lie: a product and rounding keep the order of values."""
    ends = [float(np.rint(np.float32(end) * np.float32(inverse))) for end in clamp]
    return max(grid.low, ends[0]), min(grid.high, ends[1])


def _passing(grid: Grid, pass_through: bool, clamp: Clamp | None, inverse: float) -> tuple[float, float]:
    """The ends between which gradients pass: of steps; behind an activation, of what is in front of it."""
    if clamp is None:
        return grid.low - 0.5, grid.high + 0.5
    if pass_through:
        return clamp
    return clamp.low, min(clamp.high, _first_beyond(grid.high + 0.5, inverse))


def _first_beyond(steps: float, inverse: float) -> float:
    """The smallest float32 that is so many steps or more, with the product rounded as it is there."""
    with np.errstate(all="ignore"):
        factor, bound = np.float32(inverse), np.float32(steps)
        value = bound / factor
        while value * factor >= bound:
            value = np.nextafter(value, np.float32(-np.inf))
        while value * factor < bound:
            value = np.nextafter(value, np.float32(np.inf))
    return float(value)
