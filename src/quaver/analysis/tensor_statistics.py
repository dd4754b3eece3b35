"""Statistics of tensors over many batches, in constant memory: maxima over every value, the rest over a sample."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from quaver.analysis.findings import BINS, PERCENTILES, Spread, TensorStatistics
from quaver.analysis.histogram import Counts, Histogram
from quaver.analysis.sampling import some_values
from quaver.analysis.sites import Site
from quaver.grid import Grid


@dataclass
class Tally:
    """What is known of one tensor so far. ``state`` and ``accum`` are those of the moving average of max|x|."""

    counts: Counts = field(default_factory=Counts)
    largest: float = -math.inf
    smallest: float = math.inf
    state: float = 0.0
    accum: float = 0.0
    not_finite: int = 0

    @property
    def is_never_finite(self) -> bool:
        """Whether every batch had NaN or Inf in it."""
        return self.not_finite > 0 and not self.state


class Accumulator:
    """Looks at tensors while a batch runs, and counts when it is through: one wait for the device per batch."""

    def __init__(self, sites: list[Site], moving_rate: float) -> None:
        self.tallies = {site.name: Tally() for site in sites}
        self.moving_rate = moving_rate
        self.batches = 0
        self._seen: list[tuple[str, Tensor, Tensor, Tensor]] = []

    def look(self, site: Site, x: Tensor, unit: Any) -> None:
        """Note a tensor, counted in steps of ``unit``."""
        if not x.numel() or not x.is_floating_point():
            return
        low, high = torch.aminmax(x.detach())
        self._seen.append((site.name, low.float() * unit, high.float() * unit, some_values(x, self.batches) * unit))

    def end_batch(self) -> None:
        """Count what was noted."""
        seen, self._seen = self._seen, []
        self.batches += 1
        if not seen:
            return
        lows_and_highs = torch.stack([torch.stack([low, high]) for _, low, high, _ in seen]).tolist()
        for (name, _, _, sample), (low, high) in zip(seen, lows_and_highs, strict=True):
            self._count(self.tallies[name], low, high, sample)

    def _count(self, tally: Tally, low: float, high: float, sample: Tensor) -> None:
        if not (math.isfinite(low) and math.isfinite(high)):  # NaN or Inf says nothing about the range
            tally.not_finite += 1
            return
        tally.counts.add(sample)
        tally.largest, tally.smallest = max(tally.largest, high), min(tally.smallest, low)
        tally.state = self.moving_rate * tally.state + 1
        tally.accum = self.moving_rate * tally.accum + max(high, -low)


def statistics_of(site: Site, tally: Tally) -> TensorStatistics | None:
    """The record of a tensor; None if no batch had a finite one."""
    if not tally.state:
        return None
    histogram = tally.counts.done(tally.smallest, tally.largest)
    grid = site.grid if site.rounded else Grid(8, signed=tally.smallest < 0, narrow=False)
    largest, moving_max = max(tally.largest, -tally.smallest), tally.accum / tally.state
    threshold = moving_max if site.threshold is None else site.threshold
    return TensorStatistics(
        name=site.name,
        quantizer=site.quantizer,
        slot=site.slot,
        rounded=site.rounded,
        bits=grid.bits,
        signed=grid.signed,
        threshold=threshold,
        moving_max=moving_max,
        largest=largest,
        smallest=tally.smallest,
        best_threshold=histogram.best_threshold(largest, grid),
        percentiles=percentiles_of(histogram, largest),
        zeros=histogram.zeros / max(histogram.total, 1),
        clipped=histogram.saturated(threshold, grid) if threshold > 0 else 0.0,
        sqnr_db=decibels(histogram.power, histogram.noise(threshold, grid)) if threshold > 0 else None,
        not_finite=tally.not_finite,
        histogram=spread(histogram, tally.smallest, tally.largest),
    )


def percentiles_of(histogram: Histogram, largest: float) -> dict[str, float]:
    """The usual ones; none is larger than the largest value, as the end of a bin can be."""
    values = histogram.percentiles(PERCENTILES)
    return {f"{share:g}": min(value, largest) for share, value in zip(PERCENTILES, values, strict=True)}


def spread(histogram: Histogram, smallest: float, largest: float) -> Spread:
    """A histogram to be shown: from the smallest to the largest value, and zero."""
    start, end = min(smallest, 0.0), max(largest, 0.0)
    if start == end:
        end = 1.0
    return Spread(start=start, end=end, counts=histogram.even_bins(start, end, BINS))


def decibels(signal: float, noise: float) -> float | None:
    """Signal to noise; None where there is no noise, nothing to disturb, or more than a number can say.

    >>> decibels(100.0, 1.0)
    20.0
    """
    if not (0 < noise < math.inf and 0 < signal < math.inf):
        return None
    return 10 * math.log10(signal / noise)
