"""Whether what a user's function gives lies on an integer grid, and on which."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from quaver.grid import Grid

CLOSE = 1e-3  # of a step: float32 is off by 1e-5 of one at 127 steps, an honest quantizer by little more
_SIZES = 2.0 ** torch.arange(-40, 40, 0.25)  # closer than 0.5 is to 1.5 steps, so the first that is not 0 gives one step
_INSIDE = torch.linspace(-0.48, 0.48, 17)  # of a step: how a tie is rounded is nobody's business


class OffGridError(Exception):
    """The values lie on no grid; the message says what was seen."""


def common_step(values: Tensor, axis: int | None, grid: Grid) -> Tensor:
    """The step of which all ``values`` are multiples, at most ``grid.high`` times it; one per channel along ``axis``.

    Neighbouring sizes are one step apart, or some: the smallest gap is divided until every value fits. The largest step that
    fits is taken; for zeros it is 0.

    >>> common_step(torch.tensor([0.5, -1.5, 0.0]), None, Grid(8))
    tensor(0.5000)
    """
    rows = values.reshape(1, -1) if axis is None else values.movedim(axis, 0).reshape(values.shape[axis], -1)
    sizes = rows.abs()
    largest = sizes.amax(1)
    if not bool(largest.isfinite().all()):
        raise OffGridError("its values hold NaN or Inf")
    step = _full_range(sizes, largest, grid)
    if bool(step.isnan().any()):
        step = _searched(step, sizes, largest, grid)
    if bool(step.isnan().any()):
        channel = int(step.isnan().nonzero()[0])
        where = "" if axis is None else f" of channel {channel}"
        raise OffGridError(
            f"its values{where}, up to {largest[channel].item():.6g}, are not all multiples of one step, at most "
            f"{grid.high} times it"
        )
    return step[0] if axis is None else step


def _full_range(sizes: Tensor, largest: Tensor, grid: Grid) -> Tensor:
    """The steps of rows whose largest value lies on the last integer of 8 bits: the ordinary case, quick to find.

    127 is prime: were the largest value fewer steps than that, no smaller one would be a multiple of its 127th part. NaN
    where it is not so, or where there is no smaller one to tell by.
    """
    step = torch.where(largest > 0, torch.nan, 0.0)
    if grid.high != 127:
        return step
    trial = largest / grid.high
    steps = sizes / trial.clamp_min(torch.finfo(torch.float32).tiny)[:, None]
    fits = (steps - steps.round()).abs().amax(1) < CLOSE
    smaller = ((steps > 0.5) & (steps < grid.high - 0.5)).any(1)
    return torch.where(fits & smaller, trial, step)


def _searched(step: Tensor, sizes: Tensor, largest: Tensor, grid: Grid) -> Tensor:
    """``step``, with what a division of the smallest gap gives in the place of NaN."""
    gaps = torch.cat([torch.zeros_like(sizes[:, :1]), sizes], 1).sort(1).values.diff(dim=1)
    gap = torch.where(gaps > 0.5 * largest[:, None] / grid.high, gaps, torch.inf).amin(1)  # less is float rounding
    for parts in range(1, grid.high + 1):
        multiples = (largest * parts / gap).round()
        open_ = step.isnan() & (multiples <= grid.high)
        if not bool(open_.any()):
            break
        trial = largest / multiples.clamp_min(1)
        steps = sizes / trial.clamp_min(torch.finfo(torch.float32).tiny)[:, None]
        step = torch.where(open_ & ((steps - steps.round()).abs().amax(1) < CLOSE), trial, step)
    return step


def staircase(function: nn.Module, grid: Grid, rank: int, device: torch.device) -> tuple[float, tuple[int, int]]:
    """Step and ends of ``function``, if it is ``clip(round(x / step)) · step`` for every element by itself, but for ties.

    It is tried, in evaluation mode, on values a fraction of a step apart, over the whole range and beyond: in the batch,
    along the channels, and the small ones alone.
    """
    with _trying(function, rank, device) as tried:
        return _staircase(tried, grid)


def clip_bounds(function: nn.Module, step: float, grid: Grid, rank: int, device: torch.device) -> tuple[int, int]:
    """The integers of ``grid`` between which ``function`` clips, if it is a clip as far as steps of this size can tell.

    A clip in front of a rounding is one behind it, between the rounded ends. It is tried as `staircase` tries.

    >>> clip_bounds(nn.Hardtanh(-1.0, 2.0), 0.1, Grid(8), 2, torch.device("cpu"))
    (-10, 20)
    """
    with _trying(function, rank, device) as tried:
        far = 2.0 * (grid.high - grid.low) + 1
        high, low = tried(step * torch.tensor([far, -far if grid.signed else 0.0])).tolist()
        if not (low < 0 if grid.signed else low == 0) or not high > 0:
            raise OffGridError(f"it goes from {low:.6g} to {high:.6g}, which is no range around 0")
        x = step * _probes(grid.low, grid.high, far, grid)
        for values, axis in _layouts(x, step):
            _compare(values, tried(values, axis), values.clamp(low, high), step)
    return max(grid.low, round(low / step)), min(grid.high, round(high / step))


@contextmanager
def _trying(function: nn.Module, rank: int, device: torch.device) -> Iterator["_Tried"]:
    try:
        trial = copy.deepcopy(function).eval()  # what it remembers of the tensors it sees must not be these
        with torch.no_grad():
            yield _Tried(trial, rank, device)
    except OffGridError:
        raise
    except Exception as error:  # whatever a user's function raises
        raise OffGridError(f"it does not take single values: {error}") from error


class _Tried:
    """The function on values that are laid out along one axis."""

    def __init__(self, function: nn.Module, rank: int, device: torch.device) -> None:
        self.function, self.rank, self.device = function, rank, device

    def __call__(self, x: Tensor, axis: int = 0) -> Tensor:
        shape = [1] * max(self.rank, 1)
        shape[axis if axis < self.rank else 0] = -1
        laid = x.to(self.device).view(shape)
        values: Tensor = self.function(laid)
        if values.shape != laid.shape:
            raise OffGridError("it does not do the same at every position of a tensor")
        return values.flatten().float().cpu()


def _staircase(tried: _Tried, grid: Grid) -> tuple[float, tuple[int, int]]:
    if abs(float(tried(torch.zeros(1)))) > 0:
        raise OffGridError(f"it gives {float(tried(torch.zeros(1))):.6g} for 0, which an engine's grid always holds")
    above = tried(_SIZES)
    first = (above > 0.5 * _SIZES).nonzero()
    if len(first) == 0:
        raise OffGridError("it gives nothing but zeros and negative values for positive ones")
    if first[0] == 0:
        raise OffGridError(f"it gives {float(above[0]):.6g} for {float(_SIZES[0]):.6g}: it does not round to steps")
    step = float(above[first[0]])
    alone = float(tried(_SIZES[first[0]]))
    if not abs(alone - step) < CLOSE * step:
        raise OffGridError(
            f"it gives {alone:.6g} for {float(_SIZES[first[0]]):.6g} alone, and {step:.6g} for it in a tensor with larger "
            "values"
        )
    far = (2 * (grid.high - grid.low) + 1) * step
    extremes = tried(torch.tensor([far, -far])) / step
    if not bool(extremes.isfinite().all()):
        raise OffGridError(f"it gives NaN or Inf for {far:.6g} or {-far:.6g}")
    high, low = round(float(extremes[0])), round(float(extremes[1])) if grid.signed else 0
    if high > grid.high or low < grid.low:
        raise OffGridError(
            f"it goes from {low * step:.6g} to {high * step:.6g} in steps of {step:.6g}, and the integers of the grid are "
            f"{grid.low} … {grid.high}; clip it, with zero on the grid"
        )
    if grid.signed and low == 0:
        raise OffGridError("it gives no negative values for a tensor that has some; put a ReLU in front of it")
    step = float(tried(torch.tensor([(high + 1) * step]))) / high  # from the last integer, where float rounding counts least
    x = step * _probes(low, high, far / step, grid)
    for values, axis in _layouts(x, step):
        _compare(values, tried(values, axis), step * (values / step).round().clamp(low, high), step)
    return step, (low, high)


def _probes(low: int, high: int, far: float, grid: Grid) -> Tensor:
    """In steps: all over a range and a little beyond, and last far beyond, on both sides where the grid has two."""
    steps = (torch.arange(low - 3, high + 4)[:, None] + _INSIDE).flatten()
    steps = torch.cat([steps, torch.tensor([far, -far])])
    return steps if grid.signed else steps[steps >= 0]


def _layouts(x: Tensor, step: float) -> list[tuple[Tensor, int]]:
    """Values and the axis to lay them out along: in the batch, along the channels, and the small ones alone."""
    mixed = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]
    return [(x, 0), (mixed, 1), (mixed, 3), (x[x.abs() < 2 * step], 0)]


def _compare(x: Tensor, values: Tensor, expected: Tensor, step: float) -> None:
    wrong = ~((values - expected).abs() < CLOSE * step)  # NaN is wrong too
    if bool(wrong.any()):
        index = int(wrong.nonzero()[0])
        raise OffGridError(
            f"it gives {float(values[index]):.6g} for {float(x[index]):.6g}, and the nearest multiple of its step of "
            f"{step:.6g} is {float(expected[index]):.6g}"
        )
