"""Training curves from the lines of ``metrics.jsonl``: for each measure the values over the steps, phase after phase."""

import math
from dataclasses import dataclass, field
from typing import Any

from quaver.report.gather import Record, Run

POINTS = 300
"""Points of a curve that are shown; more are averaged."""

# Title, how its values are written, and the keys that hold it, in the order in which they are looked for.
CHARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Loss", "number", ("loss", "train_loss")),
    ("Top-1 accuracy", "percent", ("top1", "acc_top1", "accuracy", "val_top1")),
    ("mAP", "percent", ("map", "mAP")),
    ("Learning rate", "number", ("lr",)),
)


@dataclass
class Chart:
    """A measure: its series, each with a label and points, and the steps at which a phase begins."""

    title: str
    kind: str
    series: list[dict[str, Any]] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)


def charts_of(runs: list[Run]) -> list[Chart]:
    """The charts for which there are values."""
    found = []
    for title, kind, keys in CHARTS:
        chart = Chart(title, kind)
        for run in runs:
            points, starts = _points(run.metrics, keys)
            if len(points) > 1:
                chart.series.append({"label": run.name, "points": thinned(points)})
                chart.marks = [{"x": x, "label": phase} for phase, x in starts.items()] if len(starts) > 1 else []
        if chart.series:
            found.append(chart)
    return found


def _points(records: list[Record], keys: tuple[str, ...]) -> tuple[list[tuple[float, float]], dict[str, float]]:
    """The values over the steps of all phases in a row, and the step at which each phase begins."""
    points: list[tuple[float, float]] = []
    starts: dict[str, float] = {}
    phase, first, last = None, 0.0, 0.0
    for record in records:
        step: Any = record.get("step", record.get("epoch"))
        if not _is_number(step):
            continue
        name = str(record.get("phase", record.get("stage", "")))
        if name != phase:
            phase, first = name, last
            starts.setdefault(name, first)
        last = max(last, first + float(step))
        value = next((record[key] for key in keys if _is_number(record.get(key))), None)
        if value is not None:
            points.append((first + float(step), float(value)))
    return points, starts


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def thinned(points: list[tuple[float, float]], limit: int = POINTS) -> list[list[float]]:
    """At most ``limit`` points, each the average of its neighbours; four digits are as many as a screen shows.

    >>> thinned([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (3.0, 7.0)], limit=2)
    [[0.5, 2.0], [2.5, 6.0]]
    """
    size = max(-(-len(points) // limit), 1)
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    means = [[sum(pair[axis] for pair in group) / len(group) for axis in (0, 1)] for group in groups]
    return [[round(x, 2), float(f"{y:.4g}")] for x, y in means]
