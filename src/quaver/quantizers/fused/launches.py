"""The kernels as functions of tensors, with gradients."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from quaver.errors import ConfigError
from quaver.grid import Grid
from quaver.quantizers.eager_calls import in_a_row
from quaver.quantizers.fused import SWITCH
from quaver.quantizers.in_blocks import Clamp
from quaver.quantizers.kept_integers import are_wanted, integer_type, keep

try:
    from quaver.quantizers.fused import triton_kernels
    from quaver.quantizers.fused.kernel import Kernel, divisibility
except ImportError as error:
    raise ConfigError(
        f"{SWITCH}=1 in the environment asks for kernels in Triton, and that does not import here: {error}. "
        f"Install it (pip install triton), or unset {SWITCH}: the results are the same."
    ) from error

BLOCK = 1024
REDUCED = 4096
"""Values that a program reduces at a time: it waits for memory, and only for so many at once."""
PROGRAMS = 1024
"""As many reduce a tensor at most: they meet at one address."""

_observe = Kernel(triton_kernels.observe)
_round_to_grid = Kernel(triton_kernels.round_to_grid)
_mask_gradient = Kernel(triton_kernels.mask_gradient)
_slope_and_mask = Kernel(triton_kernels.slope_and_mask)


def observe(
    x: Tensor,
    buffers: tuple[Tensor, Tensor],
    scratch: Tensor,
    nonfinite: Tensor,
    limit: Tensor | None,
    grid: Grid,
    *,
    rule: str,
    slot: int,
    tensors: int,
    window: int = 1,
    rate: float = 0.0,
    clamp: Clamp | None = None,
) -> Tensor:
    """Let max|x| into the range that ``buffers`` hold, as the rule of that name does, and give the step that comes of it.

    With a ``clamp`` it is observed behind that. ``x`` leaves no gaps in memory.
    """
    count, scale, device = x.numel(), torch.empty((), device=x.device), x.get_device()
    constants = (
        rule,
        tensors,
        1 << (tensors - 1).bit_length(),
        grid.signed,
        grid.narrow,
        limit is not None,
        device >= 0,
        _end(clamp),
        REDUCED,
    )
    _observe(
        min(-(-count // REDUCED), PROGRAMS),
        device,
        (constants, x.dtype, x.data_ptr() % 16, divisibility(count)),
        x,
        scratch,
        *buffers,
        nonfinite,
        scale if limit is None else limit,
        scale,
        count,
        slot,
        window,
        rate,
        float(grid.high),
        *constants,
    )
    return scale


def fake_quantize(
    x: Tensor,
    scale: Tensor,
    grid: Grid,
    pass_through: bool,
    clamp: Clamp | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """`arithmetic.fake_quantize` of ``x``, or of what an activation makes of it, in one launch there and one back.

    It comes in ``dtype``, or in that of ``x``.
    """
    kept = integer_type(grid) if are_wanted() else None
    integers = None if kept is None else torch.empty_like(in_a_row(x), dtype=kept)
    value: Tensor = _FusedFakeQuantize.apply(x, scale, grid, pass_through, clamp, dtype, integers)  # type: ignore[no-untyped-call]
    return value if integers is None else keep(value, integers, scale)


def takes(scale: Tensor, x: Tensor) -> bool:
    """Whether it is one step, or one for each channel along a single axis."""
    one_axis = scale.dim() == x.dim() and sum(size != 1 for size in scale.shape) == 1
    return scale.dtype == torch.float32 and (scale.numel() == 1 or one_axis)


class _FusedFakeQuantize(torch.autograd.Function):
    """Forward and backward: `arithmetic._FakeQuantize`; a bit for each value is kept, of a learned step ``x`` itself."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        grid: Grid,
        pass_through: bool,
        clamp: Clamp | None,
        dtype: torch.dtype | None,
        integers: Tensor | None,
    ) -> Tensor:
        given = in_a_row(x)
        to_x, learned = ctx.needs_input_grad[:2]
        ctx.grid, ctx.masked = grid, to_x and not (pass_through and clamp is None)
        result, count, device = torch.empty_like(given, dtype=dtype), x.numel(), x.get_device()
        ctx.dtype = x.dtype
        masked = ctx.masked and not learned
        # a bit for each value; written to by nobody where there are none
        bits = torch.empty(-(-count // 8), dtype=torch.uint8, device=x.device) if masked else result
        inner, channels, per_channel = _channels(given, scale)
        constants = (per_channel, grid.low < 0, masked, integers is not None, _end(clamp), pass_through, device >= 0, BLOCK)
        pointers = given.data_ptr() % 16, scale.data_ptr() % 16
        numbers = divisibility(count), divisibility(inner), divisibility(channels)
        kinds = x.dtype, result.dtype, None if integers is None else integers.dtype
        _round_to_grid(
            -(-count // BLOCK),
            device,
            (constants, pointers, numbers, kinds),
            given,
            scale,
            result,
            bits,
            bits if integers is None else integers,
            count,
            inner,
            channels,
            float(grid.low),
            float(grid.high),
            *constants,
        )
        if learned:
            ctx.save_for_backward(given, scale)
        elif masked:
            ctx.stride = result.stride()
            ctx.save_for_backward(bits)
        return result

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        if not saved:
            return gradient.to(ctx.dtype), None, None, None, None, None, None
        if len(saved) == 1:
            return _masked(gradient, saved[0], ctx.stride, ctx.dtype), None, None, None, None, None, None
        x, scale = saved
        gradient = _laid_out(gradient, x.stride()).to(ctx.dtype)
        result = torch.empty_like(gradient) if ctx.masked else gradient
        slopes = torch.empty_like(gradient, dtype=torch.float32)
        inner, channels, per_channel = _channels(x, scale)
        constants = (per_channel, ctx.grid.low < 0, ctx.masked, BLOCK)
        pointers = x.data_ptr() % 16, gradient.data_ptr() % 16, scale.data_ptr() % 16
        numbers = divisibility(x.numel()), divisibility(inner), divisibility(channels)
        _slope_and_mask(
            -(-x.numel() // BLOCK),
            x.get_device(),
            (constants, pointers, numbers, x.dtype, gradient.dtype),
            gradient,
            x,
            scale,
            result,
            slopes,
            x.numel(),
            inner,
            channels,
            float(ctx.grid.low),
            float(ctx.grid.high),
            *constants,
        )
        # summed by torch: in what order is its own affair, and the last bits hang on it
        return result, slopes.sum_to_size(scale.shape), None, None, None, None, None


def _masked(gradient: Tensor, bits: Tensor, stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The gradient, in ``dtype``, where the bit of a tensor laid out like this is set, 0 elsewhere."""
    gradient = _laid_out(gradient, stride)
    result, count = torch.empty_like(gradient, dtype=dtype), gradient.numel()
    form = gradient.dtype, dtype, gradient.data_ptr() % 16, divisibility(count)
    _mask_gradient(-(-count // BLOCK), gradient.get_device(), form, gradient, bits, result, count, BLOCK)
    return result


def _laid_out(gradient: Tensor, stride: tuple[int, ...]) -> Tensor:
    if gradient.stride() == stride:
        return gradient
    return gradient.new_empty_strided(gradient.shape, stride).copy_(gradient)


def _channels(x: Tensor, scale: Tensor) -> tuple[int, int, bool]:
    """How far channels are apart in memory and how many there are, and whether each has a step of its own."""
    if scale.dim() == 0:
        return 1, 1, False
    axis = next((axis for axis, size in enumerate(scale.shape) if size != 1), None)
    return (1, 1, False) if axis is None else (x.stride(axis), x.shape[axis], True)


def _end(clamp: Clamp | None) -> float:
    """Where an activation ends that begins at 0; 0 where there is none."""
    assert clamp is None or (clamp.low == 0 < clamp.high <= math.inf)
    return 0.0 if clamp is None else clamp.high
