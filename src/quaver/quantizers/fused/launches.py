"""The kernels as functions of tensors, with gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from quaver.errors import ConfigError
from quaver.grid import Grid
from quaver.quantizers.eager_calls import in_a_row
from quaver.quantizers.fused import SWITCH
from quaver.quantizers.kept_integers import are_wanted, integer_type, keep

try:
    from quaver.quantizers.fused import triton_kernels
except ImportError as error:
    raise ConfigError(
        f"{SWITCH}=1 in the environment asks for kernels in Triton, and that does not import here: {error}. "
        f"Install it (pip install triton), or unset {SWITCH}: the results are the same."
    ) from error

BLOCK = 1024
EVERYWHERE = {"BLOCK": BLOCK, "enable_fp_fusion": False}
PROGRAMS = 1024
"""As many reduce a tensor at most: they meet at one address."""


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
) -> Tensor:
    """Let max|x| into the range that ``buffers`` hold, as the rule of that name does, and give the step that comes of it."""
    x, scale = in_a_row(x.detach()), torch.empty((), device=x.device)
    triton_kernels.observe[(min(-(-x.numel() // BLOCK), PROGRAMS),)](
        x,
        scratch,
        *buffers,
        nonfinite,
        scale if limit is None else limit,
        scale,
        x.numel(),
        slot,
        window,
        rate,
        float(grid.high),
        RULE=rule,
        TENSORS=tensors,
        SLOTS=1 << (tensors - 1).bit_length(),
        SIGNED=grid.signed,
        NARROW=grid.narrow,
        LIMITED=limit is not None,
        MULTIPLIES=x.is_cuda,
        **EVERYWHERE,
    )
    return scale


def fake_quantize(x: Tensor, scale: Tensor, grid: Grid, pass_through: bool) -> Tensor:
    """`arithmetic.fake_quantize`, in one launch there and one back."""
    dtype = integer_type(grid) if are_wanted() else None
    integers = None if dtype is None else torch.empty_like(in_a_row(x), dtype=dtype)
    value = _FusedFakeQuantize.apply(x, scale, grid, pass_through, integers)  # type: ignore[no-untyped-call]
    return keep(value, integers, scale)


def takes(scale: Tensor, x: Tensor) -> bool:
    """Whether it is one step, or one for each channel along a single axis."""
    one_axis = scale.dim() == x.dim() and sum(size != 1 for size in scale.shape) == 1
    return scale.dtype == torch.float32 and (scale.numel() == 1 or one_axis)


class _FusedFakeQuantize(torch.autograd.Function):
    """Forward and backward: `arithmetic._FakeQuantize`; a bit for each value is kept, of a learned step ``x`` itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, grid: Grid, pass_through: bool, integers: Tensor | None) -> Tensor:
        given, learned = in_a_row(x), ctx.needs_input_grad[1]
        masked = ctx.needs_input_grad[0] and not pass_through
        result = torch.empty_like(given)
        bits = torch.empty(-(-x.numel() // 8) if masked and not learned else 0, dtype=torch.uint8, device=x.device)
        ctx.grid, ctx.masked, ctx.stride = grid, masked, result.stride()
        triton_kernels.round_to_grid[_programs(x)](
            given,
            scale,
            result,
            bits,
            bits if integers is None else integers,
            *_places(given, scale, grid),
            MASKED=bits.numel() > 0,
            STORED=integers is not None,
            BLOCK=BLOCK,
            enable_fp_fusion=False,
        )
        if learned:
            ctx.save_for_backward(given, scale)
        elif masked:
            ctx.save_for_backward(bits)
        return result

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        saved = ctx.saved_tensors
        if not saved:
            return gradient, None, None, None, None
        if gradient.stride() != ctx.stride:
            other, gradient = gradient, gradient.new_empty_strided(gradient.shape, ctx.stride)
            gradient.copy_(other)
        result = torch.empty_like(gradient) if ctx.masked else gradient
        if len(saved) == 1:
            triton_kernels.mask_gradient[_programs(gradient)](gradient, *saved, result, gradient.numel(), **EVERYWHERE)
            return result, None, None, None, None
        x, scale = saved
        slopes = torch.empty_like(gradient, dtype=torch.float32)
        triton_kernels.slope_and_mask[_programs(x)](
            gradient, x, scale, result, slopes, *_places(x, scale, ctx.grid), MASKED=ctx.masked, **EVERYWHERE
        )
        # summed by torch: in what order is its own affair, and the last bits hang on it
        return result, slopes.sum_to_size(scale.shape), None, None, None


def _programs(x: Tensor) -> tuple[int]:
    return (-(-x.numel() // BLOCK),)


def _places(x: Tensor, scale: Tensor, grid: Grid) -> tuple[int | float, ...]:
    """How many values there are, how far channels are apart and how many, the grid's ends, whether there are channels."""
    axis = next((axis for axis, size in enumerate(scale.shape) if size != 1), None)
    inner, channels = (1, 1) if axis is None else (x.stride(axis), x.shape[axis])
    return x.numel(), inner, channels, float(grid.low), float(grid.high), axis is not None
