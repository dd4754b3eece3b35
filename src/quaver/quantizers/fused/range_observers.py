"""Range rules that a kernel knows: what is observed, and the step that comes of it, in one launch; and rounding with it."""

from typing import NamedTuple

import torch
from torch import Tensor

from quaver.quantizers.abs_max import AbsMax
from quaver.quantizers.eager_calls import in_a_row
from quaver.quantizers.fused.launches import Observation, fake_quantize, observe
from quaver.quantizers.in_blocks import Clamp
from quaver.quantizers.moving_average_abs_max import MovingAverageAbsMax
from quaver.quantizers.observer import Observer
from quaver.quantizers.quantizer import Quantizer
from quaver.quantizers.range_abs_max import RangeAbsMax


class KernelRule(NamedTuple):
    """A rule by the name that the kernel knows it by, and its two buffers."""

    name: str
    buffers: tuple[str, str]


RULES: dict[type[Quantizer], KernelRule] = {
    AbsMax: KernelRule("abs_max", ("last", "last")),
    MovingAverageAbsMax: KernelRule("moving_average_abs_max", ("state", "accum")),
    Observer: KernelRule("moving_average_abs_max", ("state", "accum")),
    RangeAbsMax: KernelRule("range_abs_max", ("window", "steps")),
}
"""By the very class: what is derived from one of them may observe otherwise."""


def observed_scale(quantizer: Quantizer, x: Tensor, tensor: int, clamp: Clamp | None = None) -> Tensor | None:
    """The step of ``quantizer`` with ``x`` observed, behind a clamp or not; None where an expression has to find it."""
    observation = _observation(quantizer, x, tensor)
    return None if observation is None else observe(in_a_row(x), observation, quantizer.grid, clamp)


def _observation(quantizer: Quantizer, x: Tensor, tensor: int) -> Observation | None:
    """What the kernel observes for a quantizer, if it knows the rule."""
    rule = RULES.get(type(quantizer))
    if rule is None or quantizer.synced or quantizer.widens_range:
        return None
    buffers = quantizer._buffers  # its own table: a module's attributes are looked for in three
    nonfinite, first, second = buffers["nonfinite"], buffers[rule.buffers[0]], buffers[rule.buffers[1]]
    assert nonfinite is not None
    assert first is not None
    assert second is not None
    if nonfinite.get_device() != x.get_device():
        return None
    scratch = quantizer.scratch
    if scratch is None or scratch.get_device() != x.get_device():
        scratch = quantizer.scratch = torch.zeros(3, dtype=torch.int32, device=x.device)
    limit = buffers["clipped_at"] if quantizer.preprocess is None else quantizer.limit
    window = quantizer.window_size if rule.name == "range_abs_max" else 1
    rate = quantizer.moving_rate if rule.name == "moving_average_abs_max" else 0.0
    return Observation(rule.name, scratch, (first, second), nonfinite, limit, tensor, quantizer.tensors, window, rate)  # type: ignore[arg-type]


def rounded(
    quantizer: Quantizer, x: Tensor, tensor: int, clamp: Clamp | None = None, multiplied: bool = False
) -> Tensor | None:
    """The tensor, or what a clamp makes of it, observed and rounded; None where an expression has to do it.

    ``multiplied``: it comes in the dtype that autocast multiplies in.
    """
    if not quantizer.quantizing or quantizer.preprocess is not None:
        return None
    observation = _observation(quantizer, x, tensor)
    if observation is None:
        return None
    scale = torch.empty((), device=x.device)
    dtype = multiplied_in(x) if multiplied else None
    return fake_quantize(x, scale, quantizer.grid, quantizer.pass_through, clamp, dtype, observation)


def multiplied_in(x: Tensor) -> torch.dtype:
    """The dtype that a product reads a tensor in."""
    kind = x.device.type
    autocast = x.dtype == torch.float32 and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if autocast else x.dtype
