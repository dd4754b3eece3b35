"""Weights by their channels' ranges, as many as there are in one launch: a table says where each lies."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from quaver.quantizers.channel_wise_abs_max import ChannelWiseAbsMax
from quaver.quantizers.eager_calls import in_a_row
from quaver.quantizers.fused import suits, triton_kernels
from quaver.quantizers.fused.launches import EVERYWHERE
from quaver.quantizers.saturation import neighbours


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


@contextmanager
def rounded_together(weights: Iterable[tuple[nn.Module, Tensor]]) -> Iterator[None]:
    """Round all weights that the kernel takes at once; while this lasts, each quantizer gives its own out, once."""
    together: dict[Any, list[tuple[ChannelWiseAbsMax, Tensor]]] = defaultdict(list)
    for quantizer, weight in weights:
        if isinstance(quantizer, ChannelWiseAbsMax) and suits(weight) and takes(quantizer, weight):
            together[weight.dtype, weight.device].append((quantizer, weight))
    for group in together.values():
        quantizers, given = zip(*group, strict=True)
        for quantizer, weight, value in zip(quantizers, given, rounded(quantizers, given), strict=True):
            quantizer.precomputed = (weight, weight._version, value)
    try:
        yield
    finally:
        for quantizer, _ in (pair for group in together.values() for pair in group):
            quantizer.precomputed = None


def rounded(quantizers: Sequence[ChannelWiseAbsMax], weights: Sequence[Tensor]) -> list[Tensor]:
    """Each weight as its quantizer rounds it; all of one dtype and device.

    The largest of a channel lies on the largest integer: nothing saturates, and gradients pass as they are.
    """
    rows = [in_a_row(weight.detach()) for weight in weights]
    table = _table(tuple(map(_place, quantizers, rows)), rows[0].device)
    result = rows[0].new_empty(table.starts[-1])
    thresholds = torch.empty(table.channels[-1], device=result.device)
    factors = {quantizer.pair_factor for quantizer in quantizers if quantizer.widens_range}
    assert len(factors) < 2  # only 8 bits can overflow
    triton_kernels.round_weights[(table.channels[-1],)](
        table.rows,
        table.owners,
        table.neighbours,
        result,
        thresholds,
        next(iter(factors), 0.0),
        ELEMENT=triton_kernels.ELEMENTS[str(result.dtype)],
        MULTIPLIES=result.is_cuda,
        **EVERYWHERE | {"BLOCK": 256},
    )
    given = []
    for index, (quantizer, row, weight) in enumerate(zip(quantizers, rows, weights, strict=True)):
        quantizer.last = thresholds[table.channels[index] : table.channels[index + 1]]
        value = result.as_strided(row.shape, row.stride(), table.starts[index])
        given.append(_StraightThrough.apply(weight, [value]))  # type: ignore[no-untyped-call]
    return given


class _StraightThrough(torch.autograd.Function):
    """Forward: the value in the list. Backward: the gradient as it comes."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, value: list[Tensor]) -> Tensor:
        return value[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


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
