"""Range rule ``learned_step``: the step is a parameter, trained with the network (LSQ)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor, distributed, nn

from quaver.quantizers.quantizer import Common, Quantizer


class LearnedStep(Quantizer):
    """The step between two integers is learned: *Learned Step Size Quantization*, Esser et al., 2020.

    Forward: as every quantizer. Backward: to the input as every quantizer; to the step ``round(x/s) − x/s`` between the
    ends of the grid and the end itself beyond, times ``1/√(N·high)``. N counts the weights that share the step; for the
    grid of an engine's activations (``narrow=False``), the features of one image.

    The first tensor it sees in training sets it to ``2·mean|x|/√high``, as published, or to ``max|x|/high`` where that is
    less: steps beyond the largest value serve nobody, and at 8 bits the published start would leave two bits unused. With
    an ``axis`` there is a step per channel; how many ``channels`` there are, the first tensor says if nobody else does.
    Switching the observer off keeps the step as it is.

    >>> q = LearnedStep(bits=2)
    >>> q(torch.tensor([3.0, -3.0, 4.0])).detach()
    tensor([ 4., -4.,  4.])
    """

    kind = "learned_step"

    def __init__(self, bits: int = 8, axis: int | None = None, channels: int = 0, **options: Unpack[Common]) -> None:
        super().__init__(bits, **options)
        self.axis = axis
        self.step = nn.Parameter(torch.zeros(() if axis is None else channels))
        self.known: Tensor
        self.register_buffer("known", torch.zeros(self.tensors, dtype=torch.bool))

    def observe(self, x: Tensor, tensor: int = 0) -> None:
        """Start the step where it has not started: at first sight, or as long as all there was to see were zeros."""
        if x.numel() == 0 and not self.synced:
            return
        start = self.start(x)
        finite = torch.isfinite(start).all()
        self.nonfinite.add_(~finite)
        started = self.known[tensor]
        fresh = finite & (~started | (self.step == 0))
        self.step.copy_(torch.where(fresh, torch.maximum(self.step.abs(), start), self.step))
        started.logical_or_(finite)

    def start(self, x: Tensor) -> Tensor:
        """The step to begin with, for a tensor like this one."""
        others = [axis for axis in range(x.dim()) if self.axis is None or axis != self.axis % x.dim()]
        size = x.detach().abs().float()
        count = x.numel() // (1 if self.axis is None else x.shape[self.axis])
        if self.synced:
            mean, largest = _over_ranks(size, count)
        elif others:  # in double precision, so that halves of a batch come to the same mean
            mean, largest = (size.sum(others, dtype=torch.float64) / count).float(), size.amax(others)
        else:
            mean, largest = size, size
        largest = self.with_neighbours(largest, x)
        return torch.minimum(2 * mean / math.sqrt(self.grid.high), largest / self.grid.high)

    def begin(self, weight: Tensor) -> None:
        """Start from a weight."""
        self.to(weight.device)
        self.find_channels(weight)
        with torch.no_grad():
            self.observe(weight)

    @property
    def own_threshold(self) -> Tensor:
        """What lies on the largest integer."""
        return self.step.detach().abs() * self.grid.high

    @property
    def seen(self) -> Tensor | None:
        """Whether the step has been started."""
        return self.known.any()

    def range_for(self, x: Tensor, tensor: int | None) -> tuple[Tensor, Tensor | None]:
        """The threshold, with the gradient of the step."""
        self.find_channels(x)
        watched = self.training and self.observing and tensor is not None
        if watched:
            with torch.no_grad():
                self.observe(x, tensor or 0)
        threshold = self.own_threshold
        if self.observing:  # adds zero, and the gradient; in a form that keeps nothing of a parameter `observe` may write to
            change = (self.step - self.step.detach()) * self.step.detach().sign()
            threshold = threshold + change * (self.grid.high * self.gradient_scale(x))
        threshold = self.bounded(threshold)
        return (torch.where(self.known.any(), threshold, torch.nan), None) if watched else (threshold, self.seen)

    def find_channels(self, x: Tensor) -> None:
        """Make room for a step per channel, if that has not been done."""
        if self.axis is not None and self.step.numel() == 0:
            self.step.data = torch.zeros(x.shape[self.axis], device=x.device)

    def gradient_scale(self, x: Tensor) -> float:
        """The paper's factor for the gradient of the step, ``1/√(N·high)``."""
        sharing = x.shape[self.axis] if self.axis is not None else 1 if self.grid.narrow else x.shape[0] if x.dim() else 1
        return 1 / math.sqrt(max(x.numel() // max(sharing, 1), 1) * self.grid.high)

    def options(self) -> dict[str, Any]:
        """As the base class, and the axis."""
        return super().options() | {"axis": self.axis}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(prefix + "step")
        if saved is not None and saved.shape != self.step.shape and self.axis is not None:
            self.step.data = torch.zeros_like(saved, device=self.step.device)  # how many channels there are
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)  # type: ignore[no-untyped-call]


def _over_ranks(size: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean and largest over the batches of all processes, the same bits in each: everyone adds up everyone's figures."""
    figures = torch.zeros(distributed.get_world_size(), 3, dtype=torch.float64, device=size.device)
    if count:
        own = torch.stack([size.sum(dtype=torch.float64), size.new_tensor(count).double(), size.amax().double()])
        figures[distributed.get_rank()] = own
    distributed.all_reduce(figures)
    total, images, largest = figures[:, 0].sum(), figures[:, 1].sum(), figures[:, 2].amax()
    return (total / images).float(), largest.float()
