"""Range rule ``moving_average_abs_max``: an exponential average of the batches' maxima."""

from typing import Any, Unpack

import torch
from torch import Tensor

from quaver.checking import check, rate
from quaver.quantizers.quantizer import Common, Quantizer


class MovingAverageAbsMax(Quantizer):
    """Threshold = weighted mean of max|x| over the training batches, the newest weighing most.

    ``state ← rate·state + 1``, ``accum ← rate·accum + max|x|``, ``threshold = accum/state``. Both start at 0, so the
    first batch sets the threshold outright. Stored for evaluation.

    >>> q = MovingAverageAbsMax(bits=8, moving_rate=0.9)
    >>> _ = q(torch.tensor([1.0, -4.0]))
    >>> q.threshold
    tensor(4.)
    """

    kind = "moving_average_abs_max"
    by_largest = True

    def __init__(self, bits: int = 8, moving_rate: float = 0.9, **options: Unpack[Common]) -> None:
        super().__init__(bits, **options)
        check("MovingAverageAbsMax", {"moving_rate": moving_rate}, {"moving_rate": rate()})
        self.moving_rate = moving_rate
        self.state: Tensor
        self.accum: Tensor
        self.register_buffer("state", torch.zeros(self.tensors))
        self.register_buffer("accum", torch.zeros(self.tensors))

    def observe(self, x: Tensor, tensor: int = 0) -> None:
        """Let max|x| into the average."""
        largest, finite = self.observed_largest(x)
        state, accum = self.state[tensor], self.accum[tensor]
        state.copy_(torch.where(finite, self.moving_rate * state + 1, state))
        accum.copy_(torch.where(finite, self.moving_rate * accum + largest, accum))

    @property
    def own_threshold(self) -> Tensor:
        """The average; of several tensors, the largest."""
        return (self.accum / self.state.clamp_min(1)).amax()

    def threshold_or_nan(self) -> Tensor:
        """Of one tensor: 0/0 is NaN as it is."""
        return (self.accum / self.state)[0] if self.tensors == 1 else super().threshold_or_nan()

    @property
    def seen(self) -> Tensor | None:
        """Whether any batch has been observed."""
        return self.state.amax() > 0

    def options(self) -> dict[str, Any]:
        """As the base class, and the rate."""
        return super().options() | {"moving_rate": self.moving_rate}
