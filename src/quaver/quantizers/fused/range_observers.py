"""Range rules that a kernel knows: what is observed, and the step that comes of it, in one launch."""

from typing import NamedTuple

import torch
from torch import Tensor

from quaver.quantizers.abs_max import AbsMax
from quaver.quantizers.fused.launches import observe
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


def observed_scale(quantizer: Quantizer, x: Tensor, tensor: int) -> Tensor | None:
    """The step of ``quantizer`` with ``x`` observed; None where an expression has to find it."""
    rule = RULES.get(type(quantizer))
    if rule is None or quantizer.synced or quantizer.widens_range or quantizer.nonfinite.device != x.device:
        return None
    if quantizer.scratch is None or quantizer.scratch.device != x.device:
        quantizer.scratch = torch.zeros(2, dtype=torch.int32, device=x.device)
    first, second = (quantizer.get_buffer(name) for name in rule.buffers)
    return observe(
        x,
        (first, second),
        quantizer.scratch,
        quantizer.nonfinite,
        quantizer.limit,
        quantizer.grid,
        rule=rule.name,
        slot=tensor,
        tensors=quantizer.tensors,
        window=getattr(quantizer, "window_size", 1),
        rate=getattr(quantizer, "moving_rate", 0.0),
    )
