"""Range rule ``channel_wise_abs_max``: one threshold per channel of a weight, always from the weight as it is."""

from typing import Any, Unpack

import torch
from torch import Tensor

from quaver.quantizers import fused
from quaver.quantizers.quantizer import Common, Quantizer


class ChannelWiseAbsMax(Quantizer):
    """Threshold of channel c = max|w| over every axis but the channel axis; more where ``pairs`` asks for it.

    Computed anew from the weight at every call: an optimizer step can never leave it behind.

    >>> q = ChannelWiseAbsMax(bits=8, axis=0)
    >>> _ = q(torch.tensor([[1.0, -2.0], [0.5, 0.25]]))
    >>> q.threshold
    tensor([2.0000, 0.5000])
    """

    kind = "channel_wise_abs_max"
    range_prevents_saturation = True

    def __init__(self, bits: int = 8, axis: int = 0, **options: Unpack[Common]) -> None:
        super().__init__(bits, **options)
        self.axis: int = axis
        self.precomputed: tuple[Tensor, int, Tensor] | None = None
        """A weight, its version, and what it is rounded: all weights of a step may have been rounded by one kernel."""
        self.last: Tensor
        self.register_buffer("last", torch.zeros(0), persistent=False)

    @property
    def own_threshold(self) -> Tensor:
        """max|w| of each channel of the last weight seen."""
        return self.last

    @property
    def passes_all(self) -> bool:
        """As every quantizer, and where nothing lies beyond the range: the largest of a channel is its end."""
        return super().passes_all or (self.grid.signed and self.limit is None)

    def forward(self, x: Tensor, tensor: int | None = 0) -> Tensor:
        """As every quantizer; range and rounding are one kernel where kernels are wanted."""
        if self.precomputed is not None:
            (weight, version, value), self.precomputed = self.precomputed, None
            if weight is x and version == x._version:
                return value
        if fused.suits(x):
            from quaver.quantizers.fused import grouped_weights  # needs Triton

            if grouped_weights.takes(self, x):
                return grouped_weights.rounded(self, x)
        return super().forward(x, tensor)

    def range_for(self, x: Tensor, tensor: int | None) -> tuple[Tensor, Tensor | None]:
        """max|w| of each channel of this very weight."""
        with torch.no_grad():
            others = [axis for axis in range(x.dim()) if axis != self.axis % x.dim()]
            largest = self.with_neighbours(x.abs().amax(others).float() if others else x.abs().float(), x)
            if torch.compiler.is_compiling() and self.last.shape == largest.shape:
                self.last.copy_(largest)  # in place: CUDA graphs write to the same memory at every step
            else:  # a new tensor, because the old one may come from inference mode
                self.last = largest
            return self.bounded(largest), None

    def options(self) -> dict[str, Any]:
        """As the base class, and the axis."""
        return super().options() | {"axis": self.axis}
