"""Weights by their channels' ranges, as many as there are in one launch: a table says where each lies."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from quaver.quantizers import fused
from quaver.quantizers.channel_wise_abs_max import ChannelWiseAbsMax
from quaver.quantizers.eager_calls import in_a_row
from quaver.quantizers.fused import triton_kernels
from quaver.quantizers.fused.kernel import FORMS, Launch
from quaver.quantizers.fused.range_observers import multiplied_in
from quaver.quantizers.saturation import neighbours

BLOCK = 256


class WeightLayout(NamedTuple):
    """What the table says of a weight, hashable: where it lies, its channels, and which neighbours count."""

    pointer: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    axis: int
    saturation_axis: int | None
    high: int


class LaunchTable(NamedTuple):
    """Rows for the kernel, the row of each channel, and places of neighbours; where each weight and its channels begin."""

    rows: Tensor
    owners: Tensor
    neighbours: Tensor
    starts: tuple[int, ...]
    channels: tuple[int, ...]


def takes(quantizer: ChannelWiseAbsMax, weight: Tensor) -> bool:
    """Whether the kernel computes what this quantizer makes of a weight."""
    grid, axis, saturation_axis = quantizer.grid, quantizer.axis % max(weight.dim(), 1), quantizer.saturation_axis
    return (
        type(quantizer) is ChannelWiseAbsMax
        and weight.dim() > 1
        and quantizer.quantizing
        and quantizer.preprocess is None
        and quantizer.limit is None
        and grid.signed
        and grid.narrow
        and (saturation_axis is None or axis == (1 if saturation_axis % weight.dim() == 0 else 0))
    )


class WeightsTogether:
    """The weights of a program, rounded in one launch before each step.

    What the launch hangs on is compared each time, and found anew where something changed.
    """

    def __init__(self) -> None:
        self._asked: list[Any] = []
        self._groups: list[tuple[tuple[int, ...], WeightGroup]] = []

    @contextmanager
    def rounded(self, weights: Sequence[tuple[nn.Module, Tensor, bool]]) -> Iterator[None]:
        """Round all weights that the kernel takes at once; while this lasts, each quantizer gives its own out, once.

        With ``True`` a weight is read by nothing but products, which autocast computes in its dtype: it comes in that.
        """
        asked = [multiplied_in(weights[0][1]), *(_asked(quantizer, weight) for quantizer, weight, _ in weights)]
        if asked != self._asked:
            self._asked, self._groups = asked, _grouped(weights)
        for places, group in self._groups:
            given = [weights[place][1] for place in places]
            for place, value in zip(places, group.rounded(given), strict=True):
                quantizer, weight, _ = weights[place]
                quantizer.__dict__["precomputed"] = (weight, weight._version, value)  # past what a module asks of values
        try:
            yield
        finally:
            for places, _ in self._groups:
                for place in places:
                    weights[place][0].__dict__["precomputed"] = None


def _asked(quantizer: nn.Module, weight: Tensor) -> tuple[Any, ...]:
    """All that decides whether and how the kernel takes a weight."""
    if type(quantizer) is not ChannelWiseAbsMax:
        return (quantizer,)
    own = quantizer.__dict__
    return (
        quantizer,
        quantizer.grid,
        own["axis"],
        own["saturation_axis"],
        own["quantizing"],
        own.get("preprocess", own),  # a module is not among its own attributes
        quantizer._buffers["clipped_at"] is None,
        not quantizer._forward_hooks,
        type(weight),
        weight.dtype,
        weight.data_ptr(),
        weight.shape,
        weight.stride(),
    )


def _grouped(weights: Sequence[tuple[nn.Module, Tensor, bool]]) -> list[tuple[tuple[int, ...], "WeightGroup"]]:
    """The weights that the kernel takes, by what a launch can take together."""
    together: dict[Any, list[int]] = defaultdict(list)
    for place, (quantizer, weight, multiplied) in enumerate(weights):
        suits = isinstance(quantizer, ChannelWiseAbsMax) and takes(quantizer, weight) and fused.takes(weight)
        if suits and in_a_row(weight) is weight:
            multiplied = multiplied and not quantizer._forward_hooks  # they see the weight as it was written
            dtype = multiplied_in(weight) if multiplied else weight.dtype
            together[weight.dtype, weight.device, dtype].append(place)
    return [
        (tuple(places), WeightGroup([weights[place][0] for place in places], [weights[place][1] for place in places], dtype))  # type: ignore[misc]
        for (_, _, dtype), places in together.items()
    ]


def rounded(quantizer: ChannelWiseAbsMax, weight: Tensor) -> Tensor:
    """A weight as its quantizer rounds it."""
    return WeightGroup([quantizer], [in_a_row(weight)], weight.dtype).rounded([weight])[0]


class WeightGroup:
    """Weights without gaps in memory, all of one dtype and on one device, as their quantizers round them, in ``dtype``.

    The largest of a channel lies on the largest integer: nothing saturates, and gradients pass as they are.
    """

    def __init__(self, quantizers: Sequence[ChannelWiseAbsMax], weights: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.quantizers, self.dtype = quantizers, dtype
        self.table = _table(tuple(map(_place, quantizers, weights)), weights[0].device)
        factors = {quantizer.pair_factor for quantizer in quantizers if quantizer.widens_range}
        assert len(factors) < 2  # only 8 bits can overflow
        device = weights[0].get_device()
        self.launch = _rounding(self.table.channels[-1], device, weights[0].dtype, dtype, next(iter(factors), 0.0))
        self.many = [stop - start for start, stop in pairwise(self.table.channels)]
        self.layouts = [
            (weight.shape, weight.stride(), start) for weight, start in zip(weights, self.table.starts, strict=False)
        ]

    def rounded(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Each of them; ``weights`` are those that gradients go to."""
        table = self.table
        result = table.rows.new_empty(table.starts[-1], dtype=self.dtype)
        thresholds = table.rows.new_empty(table.channels[-1], dtype=torch.float32)
        self.launch(table.rows, table.owners, table.neighbours, result, thresholds)
        for quantizer, last in zip(self.quantizers, torch.split(thresholds, self.many), strict=True):
            quantizer._buffers["last"] = last
        values = [result.as_strided(*layout) for layout in self.layouts]
        if across_processes():  # each gradient when it is there: others wait for it
            return [_StraightThrough.apply([value], weight)[0] for value, weight in zip(values, weights, strict=True)]  # type: ignore[no-untyped-call]
        return _StraightThrough.apply(values, *weights)  # type: ignore[no-any-return,no-untyped-call]


@lru_cache(FORMS)
def _rounding(channels: int, device: int, dtype: torch.dtype, given: torch.dtype, pair_factor: float) -> Launch:
    element = triton_kernels.ELEMENTS[str(dtype)]
    return Launch(triton_kernels.round_weights, channels, device, pair_factor, element, device >= 0, BLOCK)


def across_processes() -> bool:
    """Whether gradients are averaged with those of other processes, while others are still computed."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


class _StraightThrough(torch.autograd.Function):
    """Forward: the values in the list. Backward: each gradient as it comes."""

    @staticmethod
    def forward(ctx: Any, values: list[Tensor], *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtype = weights[0].dtype
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return None, *(gradient if gradient is None else gradient.to(ctx.dtype) for gradient in gradients)
        return None, *_cast(gradients, ctx.dtype)


def _cast(tensors: Sequence[Tensor | None], dtype: torch.dtype) -> list[Tensor | None]:
    """All of them in a dtype, the others in as few launches as they take together."""
    others = [tensor for tensor in tensors if tensor is not None and tensor.dtype != dtype]
    if not others:
        return list(tensors)
    cast = [torch.empty_like(tensor, dtype=dtype) for tensor in others]
    torch._foreach_copy_(cast, others)
    done = iter(cast)
    return [tensor if tensor is None or tensor.dtype == dtype else next(done) for tensor in tensors]


def _place(quantizer: ChannelWiseAbsMax, weight: Tensor) -> WeightLayout:
    saturation_axis = quantizer.saturation_axis if quantizer.widens_range else None
    shape, stride = tuple(weight.shape), weight.stride()
    return WeightLayout(
        weight.data_ptr(), shape, stride, quantizer.axis % weight.dim(), saturation_axis, quantizer.grid.high
    )


@lru_cache(maxsize=1024)
def _table(places: tuple[WeightLayout, ...], device: torch.device) -> LaunchTable:
    """The same at every step: optimizers write where the weights lie."""
    rows, owners, neighbours_of = [], [], [torch.empty(0, dtype=torch.int64)]
    starts, channels, pair_start = [0], [0], 0
    for index, place in enumerate(places):
        count, inner = place.shape[place.axis], place.stride[place.axis]
        numel = torch.Size(place.shape).numel()
        beside = _neighbours(place)
        rows.append([place.pointer, channels[-1], count, inner, numel // count, place.high, starts[-1], pair_start])
        rows[-1].append(beside.shape[1])
        owners.append(torch.full((count,), index))
        neighbours_of.append(beside.flatten())
        starts.append(starts[-1] + numel)
        channels.append(channels[-1] + count)
        pair_start += beside.numel()
    owner, pair = torch.cat(owners), torch.cat(neighbours_of)
    return LaunchTable(torch.tensor(rows).to(device), owner.to(device), pair.to(device), tuple(starts), tuple(channels))


def _neighbours(place: WeightLayout) -> Tensor:
    """Where the two of each pair lie, counted from where their channel begins."""
    if place.saturation_axis is None:
        return torch.empty(2, 0, dtype=torch.int64)
    places = torch.arange(torch.Size(place.shape).numel()).as_strided(place.shape, place.stride)
    both = neighbours(places.movedim(place.saturation_axis, -1)[:1])
    return torch.stack([torch.cat([side.flatten() for side in sides]) for sides in zip(*both, strict=True)])
