"""The one rounding rule everything in Quaver shares, as pure functions of tensors.

``integers = clamp(round(x · 1/scale), low, high)``, ties to even, and ``x ≈ integers · scale``. It is written as a product
with the reciprocal because that is what the engines compute (oneDNN, XNNPACK, ``torch.ops.quantized_decomposed``); a
division differs from it in the last bit, which is enough to land on the other side of a tie.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from quaver.grid import Grid
from quaver.quantizers import fused, in_blocks, kept_integers
from quaver.quantizers.kept_integers import Integers
from quaver.quantizers.saturation import LARGEST_SUM, bounded

# A tensor of zeros has threshold 0, and a step of 0 would turn it into 0/0. Any positive step keeps it exactly zero.
# This one keeps step and reciprocal well inside float32.
SMALLEST_THRESHOLD = 1e-30


def scale_of(threshold: Tensor, grid: Grid) -> Tensor:
    """The step between two integers when ``threshold`` lies on the largest one.

    The step of an engine's activations keeps 16 significant bits, so that every multiple of it on the grid is exact in
    float32. Engines rebuild the step from the ends of the range, ``(127·s − −128·s)/255``, and add shortcuts with one
    rounding where a simulation has two; with such a step both come to the same bits.

    >>> scale_of(torch.tensor(12.7), Grid(8))
    tensor(0.1000)
    """
    scale = threshold.clamp_min(SMALLEST_THRESHOLD) / grid.high
    if grid.narrow:
        return scale
    if scale.requires_grad:  # a learned step: adds zero, and the gradient
        return _short(scale.detach()) + (scale - scale.detach())
    return _short(scale)


def _short(scale: Tensor) -> Tensor:
    """Rounded to 16 significant bits."""
    return ((scale.view(torch.int32) + 0x80) & ~0xFF).view(torch.float32)


def quantize(x: Tensor, scale: Tensor | float, grid: Grid, saturation_axis: int | None = None) -> Tensor:
    """Round ``x`` onto the grid; the result holds integers, as floats. Ties go to even, overflow saturates.

    ``saturation_axis``: the axis along which neighbours of a weight are kept from overflowing 16 bits together.

    >>> quantize(torch.tensor([0.25, 0.75, -99.0]), 0.5, Grid(8))
    tensor([   0.,    2., -127.])
    """
    integers = round_between(x, scale, grid.low, grid.high)
    if saturation_axis is None or 2 * grid.high <= LARGEST_SUM:
        return integers
    # in the weight's own memory order: a convolution passes it on to its output, and a float sum behind it depends on it
    order, result = integers.stride(), bounded(integers, saturation_axis)
    return result if result.stride() == order else torch.empty_like(integers).copy_(result)


def reciprocal(scale: Tensor | float) -> Tensor | float:
    """1/scale; of a tensor in one operation, where ``1.0 / scale`` takes two."""
    return scale.reciprocal() if isinstance(scale, Tensor) else 1.0 / scale


def round_between(x: Tensor, scale: Tensor | float, low: int, high: int) -> Tensor:
    """`quantize` for a grid given by its ends."""
    steps = x * reciprocal(scale)
    if torch.compiler.is_compiling():
        # fused anyway; and torch 2.11 silently loses the gradient of an autograd.Function that works in place
        return steps.round().clamp(low, high)
    return steps.round_().clamp_(low, high)


class Norm(NamedTuple):
    """What an engine rounds where a batch norm stands in front: ``x``, with the norm in the ends of the range per channel.

    The norm is ``x · factor + shift``, along the second dimension. ``unit``: as in `StorageFormat`. ``fused``: a convolution
    rounds a sum, and multiplies and adds apart, where others do both at once. ``by_layer``: a layer rounds at all.
    """

    x: Tensor
    factor: Tensor
    shift: Tensor | None
    unit: Tensor | float | None = None
    fused: bool = False
    by_layer: bool = False

    @property
    def shift_or_zero(self) -> Tensor:
        """The shift; zero where there is none."""
        return torch.zeros_like(self.factor) if self.shift is None else self.shift


class Sums(NamedTuple):
    """What an engine rounds where a linear layer rounds its own output: ``total · factor + bias``, per channel of the last
    dimension.

    It then multiplies factors and biases by 1/step beforehand, and each sum of products once.
    """

    total: Tensor
    factor: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class StorageFormat:
    """How an engine stores a tensor, and in what it counts what it rounds; found by measuring, see ``docs/design.md``.

    ``shifted``: signed integers start at 0, 128 added (`Grid.zero_point`), as convolutions read them; what is only added,
    multiplied with another tensor, pooled or moved is not shifted.
    ``unit``: the tensor to be rounded is counted in steps of this size, as what was added to a convolution is in steps of
    the shortcut; None for real numbers. ``fused_add``: that shortcut was stored shifted, or added inside the convolution.
    ``norm``, ``sums``: what is rounded where the engine rounds no tensor, but what that was to be computed from.
    """

    shifted: bool = True
    unit: Tensor | float | None = None
    fused_add: bool = False
    norm: Norm | None = None
    sums: Sums | None = None


def as_stored(x: Tensor, scale: Tensor | float, grid: Grid, how: StorageFormat) -> Tensor:
    """`quantize` in the very steps of OpenVINO (oneDNN).

    Shifted, it rounds ``x/scale + 128``, product and sum in one instruction with one rounding (double precision stands in
    for that here), and takes 128 off again. With a unit, the ends of the range are brought into its steps first.
    """
    scale = torch.as_tensor(scale, dtype=torch.float32, device=x.device)
    whole = (-grid.zero_point, 255 - grid.zero_point) if grid.signed else (0, 255)
    if how.norm is not None and (grid.low, grid.high) == whole:
        return _behind_norm(how.norm, scale, grid, how.shifted)
    if how.sums is not None and (grid.low, grid.high) == whole:
        return _of_sums(how.sums, scale, grid, how.shifted)
    factor, shift = 1 / scale, torch.full_like(scale, grid.zero_point)
    if how.unit is not None:
        low, high = whole
        # a tensor: CUDA divides by a number as by no tensor, it multiplies with the reciprocal
        unit = torch.as_tensor(how.unit, dtype=torch.float32, device=x.device)
        start, end = low * scale / unit, high * scale / unit
        width = end - start
        factor, shift = torch.full_like(width, 255) / width, -start * 255 / width  # 255 / width is a product in torch
        if how.fused_add and not grid.signed:
            factor = 1 / (1 / factor)  # handed over as a step, and turned back into a factor
    if not (grid.signed and how.shifted):
        return (x * factor).round_().clamp_(grid.low, grid.high)
    shifted = (x.double() * factor.double() + shift.double()).float()
    return shifted.round_().sub_(grid.zero_point).clamp_(grid.low, grid.high)


SMALLEST_FACTOR = 1e-20
"""Of a norm, where it is taken into the ends of a range: with none at all, a channel's range would have no end."""
NO_SHIFT = 255e-5
"""Steps, a hundred thousandth of a range: OpenVINO takes a shift for none that is smaller in all channels. (0.00253 steps
are left out, 0.00255 are not.)"""


def _behind_norm(norm: Norm, scale: Tensor, grid: Grid, shifted: bool) -> Tensor:
    """`as_stored` behind a batch norm: the range of each channel is ``(end − shift)/factor``.

    Where a factor is negative, signs go ahead, and nothing is counted in a unit. Signed integers that are not stored
    shifted have their 128 taken off the shift beforehand.
    """
    channels = [-1 if place == 1 else 1 for place in range(norm.x.dim())]
    factor, shift = (value.expand(norm.x.shape[1]).view(channels) for value in (norm.factor, norm.shift_or_zero))
    start, end = ((bound * scale - shift) / factor.abs().clamp_min(SMALLEST_FACTOR) for bound in (grid.low, grid.high))
    unit = torch.as_tensor(1.0 if norm.unit is None else norm.unit, dtype=torch.float32, device=norm.x.device)
    turned, x = (factor < 0).any(), norm.x.float()
    x = torch.where(turned, x * unit * torch.where(factor < 0, -1.0, 1.0), x)
    start, end = (torch.where(turned, bound, bound / unit) for bound in (start, end))
    width = end - start
    steps, first = torch.full_like(width, 255) / width, -start * 255 / width
    low = float(grid.low)
    if not shifted:
        first, low = first + low, 0.0
    if norm.by_layer:
        first = torch.where((first.abs() < NO_SHIFT).all(), 0.0, first)
    whole = x * steps + first if norm.fused else (x.double() * steps.double() + first.double()).float()
    return whole.round_().add_(low).clamp_(grid.low, grid.high)


ALIKE = 5e-5
"""Steps: OpenVINO takes biases that differ from the first channel's by no more for that one."""


def _of_sums(sums: Sums, scale: Tensor, grid: Grid, shifted: bool) -> Tensor:
    """`as_stored` by a linear layer.

    128 is added to its biases where tensors are signed, and taken off again before the sums of products are multiplied
    unless the tensor is stored shifted: some of a bias' last bits are lost. Where all channels have the same bias, or none,
    sums are rescaled first, and then rounded as others are.
    """
    inverse, zero_point = 1 / scale, grid.zero_point if grid.signed else 0
    factor = sums.factor * inverse
    bias = torch.zeros_like(factor) if sums.bias is None else sums.bias.float() * inverse
    bias = bias + zero_point
    first = bias.reshape(-1)[:1]
    are_alike = (bias - first).abs().max() <= ALIKE
    low, high = grid.low, grid.high
    if shifted:
        low, high = low + zero_point, high + zero_point
    else:
        bias, first = bias - zero_point, first - zero_point

    def by_channel() -> Tensor:
        return sums.total * factor + bias

    def alike() -> Tensor:
        shift = torch.where(first.abs() < NO_SHIFT, 0.0, first)
        return ((sums.total * sums.factor).double() * inverse.double() + shift.double()).float()

    if sums.bias is None:
        steps = alike()
    elif torch.compiler.is_compiling() or not bias.is_cpu:  # nobody waits for the answer
        steps = torch.where(are_alike, alike(), by_channel())
    else:
        steps = alike() if are_alike else by_channel()
    whole = steps.round_().clamp_(low, high)
    return whole.sub_(zero_point) if shifted else whole


def dequantize(integers: Tensor, scale: Tensor | float) -> Tensor:
    """The real numbers that ``integers`` stand for."""
    return integers * scale


class _RoundStraightThrough(torch.autograd.Function):
    """Forward: `quantize`. Backward: gradient ``1/scale`` where the integer did not saturate, 0 where it did.

    A learned scale gets ``−x/scale²`` where the value lies inside the grid, so that ``integers · scale`` has the gradient
    of `_FakeQuantize` with respect to it.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, grid: Grid, pass_through: bool, saturation_axis: int | None, how: StorageFormat
    ) -> Tensor:
        ctx.grid, ctx.pass_through = grid, pass_through
        inverse = (1.0 if how.unit is None else how.unit) / scale
        kept = () if pass_through and not ctx.needs_input_grad[1] else (x, scale)
        ctx.save_for_backward(inverse, *kept)
        return quantize(x, scale, grid, saturation_axis) if grid.narrow else as_stored(x, scale, grid, how)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        inverse, *kept = ctx.saved_tensors
        to_scale = None
        if kept:
            x, scale = kept
            steps = x * inverse
            if ctx.needs_input_grad[1]:
                inside = _is_not_saturated(steps, ctx.grid)
                to_scale = (torch.where(inside, -steps, 0.0) * gradient).sum_to_size(scale.shape) / scale
            if not ctx.pass_through:
                gradient = _where_not_saturated(gradient, steps, ctx.grid)
        return gradient * inverse, to_scale, None, None, None, None


class _FakeQuantize(torch.autograd.Function):
    """Forward: ``dequantize(quantize(x))``. Backward: gradient 1 where the integer did not saturate, 0 where it did.

    A learned scale gets `slope`.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, grid: Grid, pass_through: bool, saturation_axis: int | None, integers: Integers
    ) -> Tensor:
        ctx.grid, ctx.pass_through, ctx.saturation_axis = grid, pass_through, saturation_axis
        if not pass_through or ctx.needs_input_grad[1]:
            # x and not a mask is kept: whoever made x (a ReLU, say) mostly keeps it too, so it costs no memory.
            ctx.save_for_backward(x, scale)
        whole = quantize(x.float(), scale, grid, saturation_axis)
        integers.take(whole)
        return whole.mul_(scale).to(x.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        to_scale = None
        kept = ctx.saved_tensors  # once: activation checkpointing gives them out a single time
        if kept:
            x, scale = kept
            if ctx.needs_input_grad[1]:
                to_scale = (slope(x, scale, ctx.grid, ctx.saturation_axis) * gradient).sum_to_size(scale.shape)
            if not ctx.pass_through:
                gradient = _where_not_saturated(gradient, x.float() * reciprocal(scale), ctx.grid)
        return gradient, to_scale, None, None, None, None


def slope(x: Tensor, scale: Tensor, grid: Grid, saturation_axis: int | None = None) -> Tensor:
    """How the rounded ``x`` moves with its scale: ``round(x/s) − x/s`` between the ends of the grid, the end itself beyond.

    Equation 3 of *Learned Step Size Quantization* (Esser et al., 2020).

    >>> slope(torch.tensor([0.25, 0.8, 9.0]), torch.tensor(1.0), Grid(4))
    tensor([-0.2500,  0.2000,  7.0000])
    """
    steps = x.float() * reciprocal(scale)
    return quantize(x.float(), scale, grid, saturation_axis) - torch.where(_is_not_saturated(steps, grid), steps, 0.0)


def _is_not_saturated(steps: Tensor, grid: Grid) -> Tensor:
    return (steps > grid.low) & (steps < grid.high)


def _where_not_saturated(gradient: Tensor, steps: Tensor, grid: Grid) -> Tensor:
    # Half a step beyond the last integer still rounds to it, so the largest value of a tensor, which defines the
    # threshold, keeps its gradient.
    low, high = grid.low - 0.5, grid.high + 0.5
    if torch.compiler.is_compiling():
        return torch.where((steps > low) & (steps < high), gradient, 0.0)
    # hardtanh's backward is exactly this mask in one pass over memory, where eager torch.where takes four
    masked: Tensor = torch.ops.aten.hardtanh_backward(gradient.to(steps.dtype), steps, low, high)
    return masked.to(gradient.dtype)


def fake_quantize(
    x: Tensor, scale: Tensor, grid: Grid, *, pass_through: bool = False, saturation_axis: int | None = None
) -> Tensor:
    """``x`` as its integers would give it back; float32 inside, the dtype of ``x`` outside.

    The gradient is 1 where the integer did not saturate and 0 where it did; with ``pass_through`` it is 1 everywhere.
    """
    if torch.compiler.is_compiling():
        return _fake_quantize_compiled(x, scale, grid, pass_through, saturation_axis)
    if (saturation_axis is None or 2 * grid.high <= LARGEST_SUM) and fused.suits(x):
        from quaver.quantizers.fused import launches  # needs Triton

        if launches.takes(scale, x):
            return launches.fake_quantize(x, scale, grid, pass_through)
    if saturation_axis is None and in_blocks.takes(x, scale):
        return in_blocks.fake_quantize(x, scale, grid, pass_through)
    integers = kept_integers.Integers(x, grid)
    value = _FakeQuantize.apply(x, scale, grid, pass_through, saturation_axis, integers)  # type: ignore[no-untyped-call]
    return kept_integers.keep(value, integers.taken, scale)


def _fake_quantize_compiled(x: Tensor, scale: Tensor, grid: Grid, pass_through: bool, saturation_axis: int | None) -> Tensor:
    """`_FakeQuantize` as an expression, in the form that a compiler trains with least memory and time.

    The rounded tensor carries the value; ``carrier − carrier`` adds zero to it, and the gradient. The convolution keeps the
    rounded tensor, as it must; the mask is recomputed in backward instead of being kept, which is what ``checkpoint``
    asks for. (An autograd.Function hides its inside from the compiler: it then keeps a mask for every activation.)
    """
    with torch.no_grad():
        value = dequantize(quantize(x.float(), scale, grid, saturation_axis), scale).to(x.dtype)
    if scale.requires_grad:
        moved: Tensor = checkpoint(
            _along_scale, x, scale, grid, saturation_axis, use_reentrant=False, preserve_rng_state=False
        )
        value = value + (moved - moved.detach()).to(x.dtype)
    if pass_through:
        return value + (x - x.detach())
    carrier: Tensor = checkpoint(_inside, x, scale.detach(), grid, use_reentrant=False, preserve_rng_state=False)
    return value + (carrier - carrier.detach())


def _inside(x: Tensor, scale: Tensor, grid: Grid) -> Tensor:
    steps = x * (1.0 / scale).reshape(scale.shape or (1,))  # one dimension at least: float32 even where x is narrower
    return torch.where((steps > grid.low - 0.5) & (steps < grid.high + 0.5), x, 0.0)


def _along_scale(x: Tensor, scale: Tensor, grid: Grid, saturation_axis: int | None) -> Tensor:
    return scale * slope(x.detach(), scale.detach(), grid, saturation_axis)


def integers_with_gradient(
    x: Tensor,
    scale: Tensor,
    grid: Grid,
    *,
    pass_through: bool = False,
    saturation_axis: int | None = None,
    how: StorageFormat | None = None,
) -> Tensor:
    """`quantize`, or `as_stored` on an engine's grid; ``integers · scale`` has the gradient of `fake_quantize`."""
    return _RoundStraightThrough.apply(x.float(), scale, grid, pass_through, saturation_axis, how or StorageFormat())  # type: ignore[no-any-return,no-untyped-call]
