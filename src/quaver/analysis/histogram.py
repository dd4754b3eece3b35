"""A histogram of floats of any size, in constant memory: bins by exponent and leading bits, so no range has to be known."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quaver.grid import Grid

MANTISSA = 7  # bits: 128 bins between one power of two and the next, so a value is known to 0.8 %
LOWEST, HIGHEST = -40, 24  # exponents: what is smaller counts as zero, what is larger in the last bin of its side
PER_SIDE = (HIGHEST - LOWEST) << MANTISSA
NARROWEST = 0.01
"""The share of its width that a bin keeps at least."""

CANDIDATES = 16
"""How many thresholds are tried for the least error, and then again between the neighbours of the best."""

Doubles = NDArray[np.float64]


def bins_of(values: Tensor) -> Tensor:
    """For each float32 the index of its bin: positive ones from 0, negative ones from ``PER_SIDE``; first come the zeros."""
    bits = values.view(torch.int32)
    first = (LOWEST + 127) << MANTISSA
    size = ((bits & 0x7FFFFFFF) >> (23 - MANTISSA)).sub_(first).clamp_(0, PER_SIDE - 1)
    return size.add_((bits < 0).int().mul_(PER_SIDE))


def edges() -> Doubles:
    """The ends of the bins of one side, one more than there are bins."""
    octaves = 2.0 ** np.arange(LOWEST, HIGHEST)[:, None]
    steps = 1 + np.arange(1 << MANTISSA) / (1 << MANTISSA)
    return np.append((octaves * steps).ravel(), 2.0**HIGHEST)


class Counts:
    """The histogram while data comes in: integers on the tensor's own device."""

    def __init__(self) -> None:
        self.counts: Tensor | None = None
        self.power = 0.0

    def add(self, values: Tensor) -> None:
        """Count finite float32 values, given as one row."""
        counts = torch.bincount(bins_of(values), minlength=2 * PER_SIDE)
        self.counts = counts if self.counts is None else self.counts.add_(counts)
        self.power += float(values.double().square().sum())

    def done(self, smallest: float, largest: float) -> "Histogram":
        """What was counted, without the bins in which there is nothing; no bin reaches beyond the values there were."""
        counts = np.zeros(2 * PER_SIDE) if self.counts is None else self.counts.cpu().numpy().astype(np.float64)
        positive, negative = counts[:PER_SIDE], counts[PER_SIDE:]
        right, left = np.flatnonzero(positive[1:]) + 1, np.flatnonzero(negative[1:])[::-1] + 1
        bin_edges = edges()
        low = np.concatenate([-bin_edges[left + 1], bin_edges[right]])
        high = np.concatenate([-bin_edges[left], bin_edges[right + 1]])
        # many values may lie exactly at an end (a clamp, white pixels): spread over a bin, some would seem to lie beyond
        near = NARROWEST * (high - low)
        return Histogram(
            low=np.minimum(np.maximum(low, smallest), high - near),
            high=np.maximum(np.minimum(high, largest), low + near),
            counts=np.concatenate([negative[left], positive[right]]),
            zeros=int(positive[0] + negative[0]),
            total=int(counts.sum()),
            power=self.power,
        )


@dataclass(frozen=True)
class Histogram:
    """Of ``total`` values ``zeros`` are zero, and ``counts`` of the others lie between ``low`` and ``high``.

    Bins are in ascending order, and values are taken to be spread evenly in theirs. ``power`` is the sum of all squares.
    """

    low: Doubles
    high: Doubles
    counts: Doubles
    zeros: int
    total: int
    power: float

    def percentiles(self, shares: tuple[float, ...]) -> list[float]:
        """The magnitudes that these shares (in percent) of the values do not exceed."""
        near, far = np.minimum(abs(self.low), abs(self.high)), np.maximum(abs(self.low), abs(self.high))
        order = np.argsort(far, kind="stable")
        points = np.concatenate([[0.0], np.stack([near[order], far[order]], axis=1).ravel()])
        reached = self.zeros + np.concatenate([[0.0], np.cumsum(self.counts[order])])
        sums = np.concatenate([[self.zeros], np.repeat(reached, 2)[1:-1]])
        wanted = np.asarray(shares) / 100 * self.total
        return [float(value) for value in np.where(wanted <= self.zeros, 0.0, np.interp(wanted, sums, points))]

    def saturated(self, threshold: float, grid: Grid) -> float:
        """The share of values that lie more than half a step beyond a grid whose largest integer lies at ``threshold``."""
        step, width = threshold / grid.high, self.high - self.low
        over = np.clip(self.high - (grid.high + 0.5) * step, 0, width)
        under = np.clip((grid.low - 0.5) * step - self.low, 0, width)
        return float((self.counts * (over + under) / width).sum() / max(self.total, 1))

    def noise(self, threshold: float, grid: Grid, clipping: float = 1.0) -> float:
        """The sum of squared errors of rounding to a grid whose largest integer lies at ``threshold``.

        Those of values beyond the grid count ``clipping`` times.
        """
        step = threshold / grid.high
        bottom, top = grid.low * step, threshold
        inside = _rounding(np.clip(self.high, bottom, top) / step) - _rounding(np.clip(self.low, bottom, top) / step)
        outside = _excess(self.low, self.high, top) + _excess(-self.high, -self.low, -bottom)
        return float((self.counts * (inside * step**3 + clipping * outside) / (self.high - self.low)).sum())

    def best_threshold(self, largest: float, grid: Grid) -> float:
        """The threshold, up to ``largest``, with the least squared error."""
        if not len(self.counts):
            return largest
        low, high = 0.0, largest
        for _ in range(2):
            tried = low + (high - low) * np.arange(1, CANDIDATES + 1) / CANDIDATES
            best = int(np.argmin([self.noise(threshold, grid) for threshold in tried]))
            low, high = float(tried[best - 1]) if best else low, float(tried[min(best + 1, CANDIDATES - 1)])
        return float(tried[best])

    def even_bins(self, start: float, end: float, bins: int) -> list[int]:
        """The counts in ``bins`` bins of one width, as whole numbers; zeros are in the bin that holds zero."""
        inside = np.zeros(bins)
        if len(self.counts):
            points = np.stack([self.low, self.high], axis=1).ravel()
            reached = np.concatenate([[0.0], np.cumsum(self.counts)])
            sums = np.repeat(reached, 2)[1:-1]
            cumulative = np.interp(np.linspace(start, end, bins + 1), points, sums)
            cumulative[0], cumulative[-1] = 0.0, reached[-1]  # a bin may reach a little beyond the largest value
            inside = np.diff(cumulative)
        inside[min(int(-start / (end - start) * bins), bins - 1)] += self.zeros
        return [int(value) for value in np.rint(inside)]


def _rounding(x: Doubles) -> Doubles:
    """The integral of ``(u − round(u))²`` from 0 to x."""
    nearest = np.rint(x)
    rest = x - nearest
    value: Doubles = nearest / 12 + rest * rest * rest / 3
    return value


def _excess(low: Doubles, high: Doubles, top: float) -> Doubles:
    """The integral of ``(u − top)²`` over the part of ``low … high`` that lies above ``top``."""
    far, near = np.clip(high - top, 0, None), np.clip(low - top, 0, None)
    value: Doubles = (far * far * far - near * near * near) / 3
    return value
