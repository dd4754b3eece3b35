"""What the page's script draws: histograms, and the details of each layer."""

from typing import Any

from quaver.analysis.findings import TensorStatistics, WeightStatistics
from quaver.records import replace_non_finite
from quaver.report.gather import Run
from quaver.report.layer_rows import Row


def drawn(run: Run, rows: list[Row]) -> dict[str, Any]:
    """What the script draws of a run. JSON has no word for NaN and Inf, which a damaged record may hold: they are null."""
    analysis = run.analysis
    tensors = [] if analysis is None else [_spread(tensor) for tensor in analysis.tensors]
    weights = [] if analysis is None else [_spread(weight) for weight in analysis.weights]
    places = {tensor["name"]: index for index, tensor in enumerate(tensors)}
    weighed = {weight["name"]: index for index, weight in enumerate(weights)}
    layers = [
        {
            "name": row.name,
            "source": row.source,
            "fused": row.fused,
            "kernel": " ".join([row.executed, row.kernel]).strip(),
            "share": None if row.share is None else round(row.share, 5),
            "thresholds": {role: [min(values), max(values)] for role, values in row.thresholds.items() if values},
            "dB": [row.input_sqnr_db, row.weight_sqnr_db],
            "tensors": [places[name] for name in row.tensors if name in places],
            "weight": weighed.get(row.weight),
        }
        for row in rows
    ]
    whole = {"name": run.name, "tensors": tensors, "weights": weights, "layers": layers}
    return dict(replace_non_finite(whole, lambda value: None))


def _spread(one: TensorStatistics | WeightStatistics) -> dict[str, Any]:
    """A tensor or a weight as the script draws it, in as many digits as a screen shows."""

    def short(value: float) -> float:
        return float(f"{value:.5g}")

    if isinstance(one, TensorStatistics):
        own = {"signed": one.signed, "threshold": short(one.threshold), "best": short(one.best_threshold), "bounded": None}
    else:
        own = {"signed": True, "threshold": short(one.thresholds[1]), "best": None, "bounded": short(one.bounded)}
    return own | {
        "name": one.name,
        "start": short(one.histogram.start),
        "end": short(one.histogram.end),
        "counts": one.histogram.counts,
        "bits": one.bits,
        "largest": short(one.largest),
        "percentiles": {share: short(value) for share, value in one.percentiles.items()},
        "zeros": short(one.zeros),
        "clipped": short(one.clipped),
        "dB": None if one.sqnr_db is None else short(one.sqnr_db),
    }
