"""Range rule ``range_abs_max``: the exact maximum over a sliding window of batches."""

from typing import Any, Unpack

import torch
from torch import Tensor

from quaver.checking import check, whole
from quaver.quantizers.quantizer import Common, Quantizer


class RangeAbsMax(Quantizer):
    """Threshold = the largest max|x| among the last ``window_size`` training batches. Stored for evaluation.

    >>> q = RangeAbsMax(bits=8, window_size=2)
    >>> for largest in (5.0, 3.0, 1.0):
    ...     _ = q(torch.tensor([largest]))
    >>> q.threshold
    tensor(3.)
    """

    kind = "range_abs_max"
    by_largest = True

    def __init__(self, bits: int = 8, window_size: int = 10000, **options: Unpack[Common]) -> None:
        super().__init__(bits, **options)
        check("RangeAbsMax", {"window_size": window_size}, {"window_size": whole(1)})
        self.window_size = window_size
        self.window: Tensor
        self.steps: Tensor
        self.register_buffer("window", torch.zeros(self.tensors, window_size))
        self.register_buffer("steps", torch.zeros(self.tensors, dtype=torch.int64))

    def observe(self, x: Tensor, tensor: int = 0) -> None:
        """Put max|x| in the window, in the place of the oldest."""
        largest, finite = self.observed_largest(x)
        window, steps = self.window[tensor], self.steps[tensor]
        oldest = (steps % self.window_size).view(1)
        window.scatter_(0, oldest, torch.where(finite, largest, window.gather(0, oldest)[0]).view(1))
        steps.add_(finite)

    @property
    def own_threshold(self) -> Tensor:
        """The largest value in the window."""
        return self.window.amax()

    @property
    def seen(self) -> Tensor | None:
        """Whether any batch has been observed."""
        return self.steps.amax() > 0

    def options(self) -> dict[str, Any]:
        """As the base class, and the window's length."""
        return super().options() | {"window_size": self.window_size}
