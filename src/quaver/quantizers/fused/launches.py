"""The kernels as functions of tensors, with gradients."""

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

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
    from quaver.quantizers.fused.kernel import FORMS, Launch
except ImportError as error:
    raise ConfigError(
        f"{SWITCH}=1 in the environment asks for kernels in Triton, and that does not import here: {error}. "
        f"Install it (pip install triton), or unset {SWITCH}: the results are the same."
    ) from error

BLOCK = 1024
REDUCED = 4096
"""Values that a program reduces at a time: it waits for memory, and only for so many at once."""
ROUNDED_BESIDE = 2048
"""Values that a program rounds at a time, where it reduces them, too."""
PROGRAMS = 1024
"""As many reduce a tensor at most: they meet at one address."""


class Observation(NamedTuple):
    """A rule by the name that the kernel knows, where it keeps the range, and which of several tensors is observed."""

    rule: str
    scratch: Tensor
    buffers: tuple[Tensor, Tensor]
    nonfinite: Tensor
    limit: Tensor | None
    slot: int
    tensors: int
    window: int
    rate: float

    def held_in(self, scale: Tensor) -> tuple[Tensor, ...]:
        """The tensors as the kernel takes them, with the step that comes of them."""
        return self.scratch, *self.buffers, self.nonfinite, scale if self.limit is None else self.limit, scale

    def form(self, grid: Grid, clamp: Clamp | None) -> "ObservationForm":
        """What the launch hangs on besides the tensor's own form."""
        signs = grid.high, grid.signed, grid.narrow
        return ObservationForm(
            self.rule, self.slot, self.tensors, self.window, float(self.rate), self.limit is not None, *signs, _end(clamp)
        )


class ObservationForm(NamedTuple):
    """What a launch that observes is compiled for, and the numbers that it is given."""

    rule: str
    slot: int
    tensors: int
    window: int
    rate: float
    limited: bool
    high: int
    signed: bool
    narrow: bool
    end: float

    @property
    def constants(self) -> tuple[Any, ...]:
        """The rule's part of the kernel's constants, in their order."""
        slots = 1 << (self.tensors - 1).bit_length()
        return self.rule, self.tensors, slots, self.signed, self.narrow, self.limited


def observe(x: Tensor, observation: Observation, grid: Grid, clamp: Clamp | None = None) -> Tensor:
    """Let max|x| into the range, and give the step that comes of it.

    With a ``clamp`` it is observed behind that. ``x`` leaves no gaps in memory.
    """
    scale = torch.empty((), device=x.device)
    _observing(*_form(x), observation.form(grid, clamp))(x, *observation.held_in(scale))
    return scale


@lru_cache(FORMS)
def _observing(count: int, dtype: torch.dtype, aligned: bool, device: int, observed: ObservationForm) -> Launch:
    numbers = (count, observed.slot, observed.window, observed.rate, float(observed.high))
    programs = min(-(-count // REDUCED), PROGRAMS)
    constants = (*observed.constants, device >= 0, observed.end, REDUCED)
    return Launch(triton_kernels.observe, programs, device, *numbers, *constants)


def _form(x: Tensor) -> tuple[int, torch.dtype, bool, int]:
    """What the launch of a kernel on a tensor hangs on: its values, their dtype, whether it lies so that 16 bytes are read
    at once, and the device.
    """
    return x.numel(), x.dtype, x.data_ptr() % 16 == 0, x.get_device()


def fake_quantize(
    x: Tensor,
    scale: Tensor,
    grid: Grid,
    pass_through: bool,
    clamp: Clamp | None = None,
    dtype: torch.dtype | None = None,
    observation: Observation | None = None,
) -> Tensor:
    """`arithmetic.fake_quantize` of ``x``, or of what an activation makes of it, in one launch there and one back.

    It comes in ``dtype``, or in that of ``x``. With an ``observation`` that is made first, and ``scale`` is written.
    """
    kept = integer_type(grid) if are_wanted() else None
    integers = None if kept is None else torch.empty_like(in_a_row(x), dtype=kept)
    value: Tensor = _apply(x, scale, grid, pass_through, clamp, dtype, integers, observation)
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
        observation: Observation | None,
    ) -> Tensor:
        given = in_a_row(x)
        to_x, learned = ctx.needs_input_grad[:2]
        ctx.grid, ctx.masked, ctx.dtype = grid, to_x and not (pass_through and clamp is None), x.dtype
        masked = ctx.masked and not learned
        result = torch.empty_like(given, dtype=dtype)
        # a bit for each value; written to by nobody where there are none
        bits = torch.empty(-(-x.numel() // 8), dtype=torch.uint8, device=x.device) if masked else result
        kinds = result.dtype, None if integers is None else integers.dtype
        written = result, bits, bits if integers is None else integers
        if observation is None:
            rounds = (grid.low, grid.high, _end(clamp), pass_through, masked)
            launch = _rounding(*_form(given), *kinds, *_channels(given, scale), scale.data_ptr() % 16 == 0, *rounds)
            launch(given, scale, *written)
        else:
            observed = observation.form(grid, clamp)
            launch = _observing_and_rounding(*_form(given), observed, grid.low, pass_through, masked, *kinds)
            launch(given, *observation.held_in(scale), *written)
        if learned:
            ctx.save_for_backward(given, scale)
        elif masked:
            ctx.stride = result.stride()
            ctx.save_for_backward(bits)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # what is asked of a gradient that nobody differentiates again takes as long as the rest of this
        given = _gradients_once(ctx, gradient) if torch.is_grad_enabled() else _gradients(ctx, gradient)
        return *given, None, None, None, None, None, None


# Past `Function.apply`, which asks for what `fused.suits` has ruled out: functions that transform others (torch.func).
_apply: Any = super(torch.autograd.Function, _FusedFakeQuantize).apply  # type: ignore[misc]


@lru_cache(FORMS)
def _rounding(
    count: int,
    dtype: torch.dtype,
    aligned: bool,
    device: int,
    given: torch.dtype,
    stored: torch.dtype | None,
    inner: int,
    channels: int,
    per_channel: bool,
    scale_aligned: bool,
    low: int,
    high: int,
    end: float,
    pass_through: bool,
    masked: bool,
) -> Launch:
    constants = (per_channel, low < 0, masked, stored is not None, end, pass_through, device >= 0, BLOCK)
    numbers = (count, inner, channels, float(low), float(high))
    return Launch(triton_kernels.round_to_grid, -(-count // BLOCK), device, *numbers, *constants)


@lru_cache(FORMS)
def _observing_and_rounding(
    count: int,
    dtype: torch.dtype,
    aligned: bool,
    device: int,
    observed: ObservationForm,
    low: int,
    pass_through: bool,
    masked: bool,
    given: torch.dtype,
    stored: torch.dtype | None,
) -> Launch:
    numbers = (count, observed.slot, observed.window, observed.rate, float(low), float(observed.high))
    programs = min(-(-count // REDUCED), _at_once(device))
    rounds = (masked, stored is not None, observed.end, pass_through, device >= 0, REDUCED, ROUNDED_BESIDE)
    return Launch(triton_kernels.observe_and_round, programs, device, *numbers, *observed.constants, *rounds, at_once=True)


@cache
def _at_once(device: int) -> int:
    """So many programs that all of them are there at once; the interpreter runs one behind the other."""
    return 1 if device < 0 else 4 * torch.cuda.get_device_properties(device).multi_processor_count


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
    """Of what was rounded, and of a step that is learned."""
    saved = ctx.saved_tensors
    if not saved:
        return gradient.to(ctx.dtype), None
    if len(saved) == 1:
        return _masked(gradient, saved[0], ctx.stride, ctx.dtype), None
    x, scale = saved
    gradient = _laid_out(gradient, x.stride()).to(ctx.dtype)
    result = torch.empty_like(gradient) if ctx.masked else gradient
    slopes = torch.empty_like(gradient, dtype=torch.float32)
    pointers = gradient.data_ptr() % 16 == 0, scale.data_ptr() % 16 == 0
    launch = _sloping(*_form(x), *pointers, *_channels(x, scale), ctx.grid.low, ctx.grid.high, ctx.masked)
    launch(gradient, x, scale, result, slopes)
    # summed by torch: in what order is its own affair, and the last bits hang on it
    return result, slopes.sum_to_size(scale.shape)


_gradients_once = once_differentiable(_gradients)


@lru_cache(FORMS)
def _sloping(
    count: int,
    dtype: torch.dtype,
    aligned: bool,
    device: int,
    gradient_aligned: bool,
    scale_aligned: bool,
    inner: int,
    channels: int,
    per_channel: bool,
    low: int,
    high: int,
    masked: bool,
) -> Launch:
    numbers = (count, inner, channels, float(low), float(high))
    constants = (per_channel, low < 0, masked, BLOCK)
    return Launch(triton_kernels.slope_and_mask, -(-count // BLOCK), device, *numbers, *constants)


def _masked(gradient: Tensor, bits: Tensor, stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The gradient, in ``dtype``, where the bit of a tensor laid out like this is set, 0 elsewhere."""
    gradient = _laid_out(gradient, stride)
    result = torch.empty_like(gradient, dtype=dtype)
    _masking(*_form(gradient), dtype)(gradient, bits, result)
    return result


@lru_cache(FORMS)
def _masking(count: int, dtype: torch.dtype, aligned: bool, device: int, given: torch.dtype) -> Launch:
    return Launch(triton_kernels.mask_gradient, -(-count // BLOCK), device, count, BLOCK)


def values_of(integers: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """What integers without gaps in memory stand for, laid out as they are."""
    result = torch.empty_like(integers, dtype=dtype)
    _standing_for(*_form(integers), scale.data_ptr() % 16 == 0, dtype)(integers, scale, result)
    return result


@lru_cache(FORMS)
def _standing_for(
    count: int, dtype: torch.dtype, aligned: bool, device: int, scale_aligned: bool, given: torch.dtype
) -> Launch:
    return Launch(triton_kernels.values_of, -(-count // BLOCK), device, count, device >= 0, BLOCK)


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
