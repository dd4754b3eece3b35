"""The one rounding rule everything in Quaver shares, as pure functions of tensors.

``integers = clamp(round(x · 1/scale), low, high)``, ties to even, and ``x ≈ integers · scale``. It is written as a product
with the reciprocal because that is what the engines compute (oneDNN, XNNPACK, ``torch.ops.quantized_decomposed``); a
division differs from it in the last bit, which is enough to land on the other side of a tie.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from quaver.grid import Grid

# A tensor of zeros has threshold 0, and a step of 0 would turn it into 0/0. Any positive step keeps it exactly zero.
# This one keeps step and reciprocal well inside float32.
SMALLEST_THRESHOLD = 1e-30


def scale_of(threshold: Tensor, grid: Grid) -> Tensor:
    """The step between two integers when ``threshold`` lies on the largest one.

    >>> scale_of(torch.tensor(12.7), Grid(8))
    tensor(0.1000)
    """
    return threshold.clamp_min(SMALLEST_THRESHOLD) / grid.high


def quantize(x: Tensor, scale: Tensor | float, grid: Grid) -> Tensor:
    """Round ``x`` onto the grid; the result holds integers, as floats. Ties go to even, overflow saturates.

    >>> quantize(torch.tensor([0.25, 0.75, -99.0]), 0.5, Grid(8))
    tensor([   0.,    2., -127.])
    """
    return round_between(x, scale, grid.low, grid.high)


def round_between(x: Tensor, scale: Tensor | float, low: int, high: int) -> Tensor:
    """`quantize` for a grid given by its ends."""
    steps = x * (1.0 / scale)
    if torch.compiler.is_compiling():
        # fused anyway; and torch 2.11 silently loses the gradient of an autograd.Function that works in place
        return steps.round().clamp(low, high)
    return steps.round_().clamp_(low, high)


def dequantize(integers: Tensor, scale: Tensor | float) -> Tensor:
    """The real numbers that ``integers`` stand for."""
    return integers * scale


class _RoundStraightThrough(torch.autograd.Function):
    """Forward: `quantize`. Backward: gradient ``1/scale`` where the integer did not saturate, 0 where it did."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, grid: Grid, pass_through: bool) -> Tensor:
        ctx.grid = grid
        ctx.save_for_backward(*((scale,) if pass_through else (scale, x)))
        return quantize(x, scale, grid)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        scale, *kept = ctx.saved_tensors
        inverse = 1.0 / scale
        if kept:
            gradient = _where_not_saturated(gradient, kept[0] * inverse, ctx.grid)
        return gradient * inverse, None, None, None


class _FakeQuantize(torch.autograd.Function):
    """Forward: ``dequantize(quantize(x))``. Backward: gradient 1 where the integer did not saturate, 0 where it did."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, grid: Grid, pass_through: bool) -> Tensor:
        ctx.grid = grid
        if not pass_through:
            # x and not a mask is kept: whoever made x (a ReLU, say) mostly keeps it too, so it costs no memory.
            ctx.save_for_backward(x, scale)
        return quantize(x.float(), scale, grid).mul_(scale).to(x.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.saved_tensors:
            x, scale = ctx.saved_tensors
            gradient = _where_not_saturated(gradient, x.float() * (1.0 / scale), ctx.grid)
        return gradient, None, None, None


def _where_not_saturated(gradient: Tensor, steps: Tensor, grid: Grid) -> Tensor:
    # Half a step beyond the last integer still rounds to it, so the largest value of a tensor, which defines the
    # threshold, keeps its gradient.
    low, high = grid.low - 0.5, grid.high + 0.5
    if torch.compiler.is_compiling():
        return torch.where((steps > low) & (steps < high), gradient, 0.0)
    # hardtanh's backward is exactly this mask in one pass over memory, where eager torch.where takes four
    masked: Tensor = torch.ops.aten.hardtanh_backward(gradient.to(steps.dtype), steps, low, high)
    return masked.to(gradient.dtype)


def fake_quantize(x: Tensor, scale: Tensor, grid: Grid, *, pass_through: bool = False) -> Tensor:
    """``x`` as its integers would give it back; float32 inside, the dtype of ``x`` outside.

    The gradient is 1 where the integer did not saturate and 0 where it did; with ``pass_through`` it is 1 everywhere.
    """
    if torch.compiler.is_compiling():
        return _fake_quantize_compiled(x, scale, grid, pass_through)
    return _FakeQuantize.apply(x, scale, grid, pass_through)  # type: ignore[no-any-return,no-untyped-call]


def _fake_quantize_compiled(x: Tensor, scale: Tensor, grid: Grid, pass_through: bool) -> Tensor:
    """`_FakeQuantize` as an expression, in the form that a compiler trains with least memory and time.

    The rounded tensor carries the value; ``carrier − carrier`` adds zero to it, and the gradient. The convolution keeps the
    rounded tensor, as it must; the mask is recomputed in backward instead of being kept, which is what ``checkpoint``
    asks for. (An autograd.Function hides its inside from the compiler: it then keeps a mask for every activation.)
    """
    with torch.no_grad():
        value = dequantize(quantize(x.float(), scale, grid), scale).to(x.dtype)
    if pass_through:
        return value + (x - x.detach())
    carrier = checkpoint(_inside, x, scale, grid, use_reentrant=False, preserve_rng_state=False)
    return value + (carrier - carrier.detach())


def _inside(x: Tensor, scale: Tensor, grid: Grid) -> Tensor:
    steps = x * (1.0 / scale).reshape(scale.shape or (1,))  # one dimension at least: float32 even where x is narrower
    return torch.where((steps > grid.low - 0.5) & (steps < grid.high + 0.5), x, 0.0)


def integers_with_gradient(x: Tensor, scale: Tensor, grid: Grid, *, pass_through: bool = False) -> Tensor:
    """`quantize`, differentiable by the same rule as `fake_quantize`: ``integers · scale`` has the gradient of that."""
    return _RoundStraightThrough.apply(x.float(), scale, grid, pass_through)  # type: ignore[no-any-return,no-untyped-call]
