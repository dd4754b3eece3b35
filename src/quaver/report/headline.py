"""The figures of a run that come first: accuracy, size and speed, in float, simulated and deployed."""

from dataclasses import dataclass, fields
from typing import Any

from quaver.machine.cpu import CPU
from quaver.report.gather import Record, Run, is_figure, measured


@dataclass
class Figures:
    """The figures that are known; the others are None.

    Accuracy in float, simulated and deployed is over the same ``images``; what the engine reached on others stands
    ``elsewhere`` and is compared with none of them. Agreement is over ``deployed_images``.
    """

    float_top1: float | None = None
    simulated_top1: float | None = None
    deployed_top1: float | None = None
    float_map50: float | None = None
    simulated_map50: float | None = None
    deployed_map50: float | None = None
    elsewhere_top1: float | None = None
    elsewhere_map50: float | None = None
    simulated_top5: float | None = None
    deployed_top5: float | None = None
    agreement: float | None = None
    agreement_unit: str = ""
    integers_equal: float | None = None
    images: int | None = None
    deployed_images: int | None = None
    elsewhere_images: int | None = None
    float_bytes: int | None = None
    int8_bytes: int | None = None
    float_ms: float | None = None
    int8_ms: float | None = None
    float_memory: int | None = None
    int8_memory: int | None = None
    batch: int | None = None
    engine: str = ""
    cpu: str = ""

    @property
    def speedup(self) -> float | None:
        """How many times as fast int8 is."""
        return self.float_ms / self.int8_ms if self.float_ms and self.int8_ms else None

    @property
    def smaller(self) -> float | None:
        """How many times as small int8 is."""
        return self.float_bytes / self.int8_bytes if self.float_bytes and self.int8_bytes else None


FROM_REPORT: dict[str, tuple[str, ...]] = {
    "float_top1": ("fp32_top1",),
    "simulated_top1": ("int8_top1", "frozen_top1", "qat_top1"),
    "deployed_top1": ("deployed_top1",),
    "float_map50": ("fp32_mAP50",),
    "simulated_map50": ("int8_mAP50", "qat_mAP50"),
    "deployed_map50": ("deployed_mAP50",),
    "agreement": ("agreement",),
    "agreement_unit": ("agreement_unit",),
    "integers_equal": ("integers_equal",),
    "images": ("test_images",),
    "deployed_images": ("verified_images",),
    "float_bytes": ("fp32_bytes",),
    "int8_bytes": ("int8_bytes",),
    "float_ms": ("fp32_ms",),
    "int8_ms": ("int8_ms",),
    "engine": ("engine",),
}
FROM_VERIFY: dict[str, tuple[str, ...]] = {
    "simulated_top1": ("accuracy_simulated",),
    "deployed_top1": ("accuracy_deployed",),
    "simulated_top5": ("top5_simulated",),
    "deployed_top5": ("top5_deployed",),
    "agreement": ("agreement",),
    "agreement_unit": ("agreement_unit",),
    "integers_equal": ("integers_equal",),
    "images": ("images",),
    "deployed_images": ("images",),
    "engine": ("engine",),
}


def figures_of(run: Run) -> Figures:
    """The figures from all records; what was measured by itself comes before what a report repeats."""
    figures, verified = Figures(batch=1), Figures()
    run.troubles += _take(figures, run.report, FROM_REPORT, f"{run.folder / 'report.json'}")
    run.troubles += _take(verified, run.verify, FROM_VERIFY, f"{run.folder}: what quaver verify says")
    if _differ(figures.images, figures.deployed_images):
        _set_apart(figures)
    if _differ(figures.images, verified.images) or _simulate_differently(figures, verified):
        _set_apart(verified)
        verified.images = verified.simulated_top1 = verified.simulated_top5 = None
    elif verified.deployed_top1 is not None:
        figures.elsewhere_top1 = figures.elsewhere_images = None
    for name, value in vars(verified).items():
        if value not in (None, ""):
            setattr(figures, name, value)
    cpu = run.bench.get("cpu") or run.verify.get("cpu") or run.report.get("cpu")
    figures.cpu = _cpu(cpu)
    with run.troubled_by("bench"):
        _speed(figures, run.bench)
    return figures


def _differ(first: int | None, second: int | None) -> bool:
    return first is not None and second is not None and first != second


def _simulate_differently(tested: Figures, verified: Figures) -> bool:
    """Whether the simulation is not as accurate on what was verified as on the test set: then these are other images.

    On the same images about one in a thousand may differ, because batches of another size add up in another order.
    """
    if tested.simulated_top1 is None or verified.simulated_top1 is None:
        return False
    return abs(tested.simulated_top1 - verified.simulated_top1) > max(0.001, 1.5 / (tested.images or 1000))


def _set_apart(figures: Figures) -> None:
    """Let what the engine reached on other images stand by itself."""
    figures.elsewhere_top1, figures.deployed_top1 = figures.deployed_top1, None
    figures.elsewhere_map50, figures.deployed_map50 = figures.deployed_map50, None
    figures.elsewhere_images = figures.deployed_images


def _take(figures: Figures, record: Record, names: dict[str, tuple[str, ...]], place: str) -> list[str]:
    """Set what the record knows; gives a line on each value that is not a figure, and left out."""
    kinds = {field.name: field.type for field in fields(Figures)}
    troubles: dict[str, str] = {}  # a key may stand for several figures
    for name, keys in names.items():
        key = next((key for key in keys if record.get(key) is not None), None)
        if key is None:
            continue
        if isinstance(record[key], str) if kinds[name] is str else is_figure(record[key]):
            setattr(figures, name, record[key])
        else:
            troubles[key] = f"{place}: {key} is {record[key]!r}, which it cannot be: left out."
    return list(troubles.values())


def _speed(figures: Figures, bench: Record) -> None:
    """The smallest batch: the first int8 model beside the best float one."""
    rows = bench.get("latencies", [])
    if not rows:
        return
    batch = min(row["batch"] for row in rows)
    alike = [row for row in rows if row["batch"] == batch]
    int8 = next((row for row in alike if not row["is_float"]), None)
    best = min((row for row in alike if row["is_float"]), key=lambda row: measured(row["median_ms"]), default=None)
    footprints = {(row["model"], row["engine"]): row for row in bench.get("footprints", [])}
    values = {"batch": measured(batch)}
    for row, kind in ((int8, "int8"), (best, "float")):
        if row is None:
            continue
        values[f"{kind}_ms"] = measured(row["median_ms"])
        footprint = footprints.get((row["model"], row["engine"]), {})
        if footprint.get("run_bytes") is not None:
            values[f"{kind}_memory"] = measured(footprint["run_bytes"])
        if getattr(figures, f"{kind}_bytes") is None and footprint.get("file_bytes") is not None:
            values[f"{kind}_bytes"] = measured(footprint["file_bytes"])
    for name, value in values.items():
        setattr(figures, name, value)


def _cpu(record: Any) -> str:
    """The processor in words."""
    if not isinstance(record, dict):
        return record if isinstance(record, str) else ""
    if isinstance(record.get("words"), str):
        return str(record["words"])
    try:
        own = {key: value for key, value in record.items() if key in {entry.name for entry in fields(CPU)}}
        return CPU(**(own | {"abilities": tuple(own["abilities"])})).words()
    except (LookupError, TypeError):
        return str(record.get("model", ""))
