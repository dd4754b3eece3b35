"""Statistics of weights, over every value."""

import torch

from quaver.analysis.findings import WeightStatistics
from quaver.analysis.histogram import Counts
from quaver.analysis.sites import WeightSite
from quaver.analysis.tensor_statistics import decibels, percentiles_of, spread


def statistics_of_weight(weight: WeightSite) -> WeightStatistics:
    """The record of a weight."""
    values = weight.values.float().flatten()
    finite = values[torch.isfinite(values)]
    smallest, largest = (float(end) for end in torch.aminmax(finite)) if finite.numel() else (0.0, 0.0)
    counts = Counts()
    counts.add(finite)
    histogram = counts.done(smallest, largest)
    magnitude = max(largest, -smallest)
    thresholds = weight.thresholds.float().nan_to_num(magnitude, magnitude)
    noise = None
    if weight.rounded is not None:
        noise = float((weight.rounded.flatten() - values).double().nan_to_num(0.0, 0.0, 0.0).square().sum())
    return WeightStatistics(
        name=weight.name,
        bits=weight.bits,
        size=values.numel(),
        channels=thresholds.numel(),
        thresholds=[float(thresholds.min()), float(thresholds.max())],
        largest=magnitude,
        percentiles=percentiles_of(histogram, magnitude),
        zeros=histogram.zeros / max(histogram.total, 1),
        clipped=weight.clipped,
        bounded=weight.bounded,
        sqnr_db=None if noise is None else decibels(histogram.power, noise),
        histogram=spread(histogram, smallest, largest),
        not_finite=values.numel() - finite.numel(),
    )
