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


def _spread(tensor: TensorStatistics | WeightStatistics) -> dict[str, Any]:
    """A tensor or a weight as the script draws it, in as many digits as a screen shows."""

    def short(value: float) -> float:
        return float(f"{value:.5g}")

    if isinstance(tensor, TensorStatistics):
        own = {
            "signed": tensor.signed,
            "threshold": short(tensor.threshold),
            "best": short(tensor.best_threshold),
            "bounded": None,
        }
    else:
        own = {"signed": True, "threshold": short(tensor.thresholds[1]), "best": None, "bounded": short(tensor.bounded)}
    return own | {
        "name": tensor.name,
        "start": short(tensor.histogram.start),
        "end": short(tensor.histogram.end),
        "counts": tensor.histogram.counts,
        "bits": tensor.bits,
        "largest": short(tensor.largest),
        "percentiles": {share: short(value) for share, value in tensor.percentiles.items()},
        "zeros": short(tensor.zeros),
        "clipped": short(tensor.clipped),
        "dB": None if tensor.sqnr_db is None else short(tensor.sqnr_db),
    }
