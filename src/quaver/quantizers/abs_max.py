"""Range rule ``abs_max``: the tensor at hand decides."""

from typing import Any, Unpack

import torch
from torch import Tensor

from quaver.quantizers.quantizer import Common, Quantizer

UNSEEN = -1.0
"""In the place of max|x|, which may well be 0, of what was not observed yet."""


class AbsMax(Quantizer):
    """Threshold = max|x| of the tensor at hand: of a weight always, of an activation in training.

    An activation (``narrow=False``) is evaluated with the range of the last training tensor, for that is what a frozen
    program has: no engine looks at a batch before it rounds it.

    >>> q = AbsMax(bits=8)
    >>> q(torch.tensor([0.0, 63.5, -127.0])), q.threshold
    (tensor([   0.,   64., -127.]), tensor(127.))
    """

    kind = "abs_max"
    by_largest = True
    range_prevents_saturation = True

    def __init__(self, bits: int = 8, **options: Unpack[Common]) -> None:
        super().__init__(bits, **options)
        self.last: Tensor
        self.register_buffer("last", torch.full((self.tensors,), UNSEEN))

    def observe(self, x: Tensor, tensor: int = 0) -> None:
        """Remember max|x|."""
        largest, finite = self.observed_largest(x)
        slot = self.last[tensor]
        slot.copy_(torch.where(finite, largest, slot))

    @property
    def own_threshold(self) -> Tensor:
        """max|x| of the last tensor seen."""
        return self.last.amax().clamp_min(0)

    @property
    def seen(self) -> Tensor | None:
        """Whether an activation was observed; a weight always has a range."""
        return None if self.grid.narrow else (self.last != UNSEEN).any()

    def range_for(self, x: Tensor, tensor: int | None) -> tuple[Tensor, Tensor | None]:
        """max|x| of this very tensor, or what was observed of an activation before."""
        if not (self.grid.narrow or (self.training and self.observing and tensor is not None)):
            return self.threshold, self.seen
        with torch.no_grad():
            if self.training and self.observing and tensor is not None:
                self.observe(x, tensor)
            if self.synced and self.training:
                largest = self.largest_over_ranks(x)
            else:
                largest = self.largest(x) if x.numel() else self.own_threshold
            if self.training:  # a batch with NaN or Inf is rounded like the one before it, and is all NaN if it is the first
                before = torch.where(self.own_threshold > 0, self.own_threshold, torch.nan)
                largest = torch.where(torch.isfinite(largest), largest, before)
            if self.tensors > 1:  # those that share the range count as they were last seen
                largest = torch.maximum(largest, self.own_threshold)
            return self.bounded(largest), None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # A weight's range follows from the weight: a state dict without it (a float model's) is complete.
        state_dict.setdefault(prefix + "last", self.last)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)  # type: ignore[no-untyped-call]
