"""Training curves from the lines of ``metrics.jsonl``: for each measure the values over the steps, phase after phase."""

from dataclasses import dataclass, field
from typing import Any

from quaver.report.gather import Record, Run, is_number

POINTS = 300
"""Points of a curve that are shown; more are averaged."""

# Title, how its values are written, and the key that holds it. A figure over the test set stands under "evaluation".
CHARTS: tuple[tuple[str, str, str], ...] = (
    ("Loss in training", "number", "loss"),
    ("Top-1 on the test set", "percent", "evaluation.top1"),
    ("mAP50 on the test set", "percent", "evaluation.mAP50"),
    ("Learning rate", "number", "lr"),
)


@dataclass
class Chart:
    """A measure: its series, each with its run and the points of every phase, and the steps at which a phase begins.

    A mark is of a run where the phases of the runs differ, else of all (None).
    """

    title: str
    kind: str
    series: list[dict[str, Any]] = field(default_factory=list)
    phase_starts: list[dict[str, Any]] = field(default_factory=list)


def charts_of(runs: list[Run]) -> list[Chart]:
    """The charts for which there are values."""
    charts = []
    for title, kind, key in CHARTS:
        chart = Chart(title, kind)
        phases: dict[int, dict[str, float]] = {}
        for index, run in enumerate(runs):
            parts, starts = _parts(run.metrics, key)
            total = sum(len(part) for part in parts)
            if total > 1:
                shares = [max(POINTS * len(part) // total, 2) for part in parts]
                thin = [thinned(part, share) for part, share in zip(parts, shares, strict=True)]
                chart.series.append({"run": index, "label": run.name, "parts": thin})
                phases[index] = starts if len(starts) > 1 else {}
        if chart.series:
            alike = all(starts == phases[chart.series[0]["run"]] for starts in phases.values())
            marked = {None: phases[chart.series[0]["run"]]} if alike else phases
            chart.phase_starts = [
                {"run": index, "x": x, "label": phase} for index, starts in marked.items() for phase, x in starts.items()
            ]
            charts.append(chart)
    return charts


def _parts(records: list[Record], key: str) -> tuple[list[list[tuple[float, float]]], dict[str, float]]:
    """The values over the steps, a part for each phase, one behind the other; and the step at which each begins."""
    parts: list[list[tuple[float, float]]] = []
    starts: dict[str, float] = {}
    phase, first, last = None, 0.0, 0.0
    for record in records:
        step: Any = record.get("step", record.get("epoch"))
        if not is_number(step):
            continue
        name = str(record.get("phase", record.get("stage", "")))
        if name != phase:
            phase, first = name, last
            parts.append([])
            starts.setdefault(name, first)
        last = max(last, first + float(step))
        value: Any = record
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if is_number(value):
            parts[-1].append((first + float(step), float(value)))
    return [part for part in parts if part], starts


def thinned(points: list[tuple[float, float]], limit: int = POINTS) -> list[list[float]]:
    """At most ``limit`` points, each the average of its neighbours; four digits are as many as a screen shows.

    >>> thinned([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (3.0, 7.0)], limit=2)
    [[0.5, 2.0], [2.5, 6.0]]
    """
    size = max(-(-len(points) // limit), 1)
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    means = [[sum(pair[axis] for pair in group) / len(group) for axis in (0, 1)] for group in groups]
    return [[round(x, 2), float(f"{y:.4g}")] for x, y in means]
