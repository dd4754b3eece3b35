"""Weights by their channels' ranges, as many as there are in one launch: a table says where each lies."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from quaver.quantizers import fused
from quaver.quantizers.channel_wise_abs_max import ChannelWiseAbsMax
from quaver.quantizers.eager_calls import in_a_row, is_eager_now
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


@contextmanager
def rounded_together(weights: Iterable[tuple[nn.Module, Tensor, bool]]) -> Iterator[None]:
    """Round all weights that the kernel takes at once; while this lasts, each quantizer gives its own out, once.

    With ``True`` a weight is read by nothing but products, which autocast computes in its dtype: it comes in that.
    """
    together: dict[Any, list[tuple[ChannelWiseAbsMax, Tensor]]] = defaultdict(list)
    wanted = is_eager_now()
    for quantizer, weight, multiplied in weights:
        if wanted and isinstance(quantizer, ChannelWiseAbsMax) and takes(quantizer, weight) and fused.takes(weight):
            multiplied = multiplied and not quantizer._forward_hooks  # they see the weight as it was written
            dtype = multiplied_in(weight) if multiplied else weight.dtype
            together[weight.dtype, weight.device, dtype].append((quantizer, weight))
    for (_, _, dtype), group in together.items():
        quantizers, given = zip(*group, strict=True)
        for quantizer, weight, value in zip(quantizers, given, rounded(quantizers, given, dtype), strict=True):
            quantizer.__dict__["precomputed"] = (weight, weight._version, value)  # past what a module asks of values
    try:
        yield
    finally:
        for group in together.values():
            for quantizer, _ in group:
                quantizer.__dict__["precomputed"] = None


def rounded(
    quantizers: Sequence[ChannelWiseAbsMax], weights: Sequence[Tensor], dtype: torch.dtype | None = None
) -> list[Tensor]:
    """Each weight as its quantizer rounds it, in ``dtype``; all of one dtype and device.

    The largest of a channel lies on the largest integer: nothing saturates, and gradients pass as they are.
    """
    rows = [in_a_row(weight) for weight in weights]
    table = _table(tuple(map(_place, quantizers, rows)), rows[0].device)
    result = rows[0].new_empty(table.starts[-1], dtype=dtype)
    thresholds = torch.empty(table.channels[-1], device=result.device)
    factors = {quantizer.pair_factor for quantizer in quantizers if quantizer.widens_range}
    assert len(factors) < 2  # only 8 bits can overflow
    launch = _rounding(len(thresholds), result.get_device(), rows[0].dtype, result.dtype, next(iter(factors), 0.0))
    launch(table.rows, table.owners, table.neighbours, result, thresholds)
    many = [stop - start for start, stop in pairwise(table.channels)]
    for quantizer, last in zip(quantizers, torch.split(thresholds, many), strict=True):
        quantizer._buffers["last"] = last
    values = [result.as_strided(row.shape, row.stride(), start) for row, start in zip(rows, table.starts, strict=False)]
    if across_processes():  # each gradient when it is there: others wait for it
        return [_StraightThrough.apply([value], weight)[0] for value, weight in zip(values, weights, strict=True)]  # type: ignore[no-untyped-call]
    return list(_StraightThrough.apply(values, *weights))  # type: ignore[no-untyped-call]


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
        return None, *(gradient if gradient is None else gradient.to(ctx.dtype) for gradient in gradients)


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
