"""Where a run comes from: versions, passes, machine, checksums."""

from dataclasses import dataclass
from typing import Any

from quaver.report.gather import Run
from quaver.report.headline import Figures


@dataclass(frozen=True)
class Provenance:
    """The origin of a run. ``facts`` are in words, by label, empty where nothing is known."""

    run: str
    folder: str
    facts: dict[str, str]
    passes: list[str] | None
    analysis: str
    weights: str
    checksums: list[tuple[str, str]]


def provenance_of(run: Run, figures: Figures) -> Provenance:
    """What the records say about the origin of a run."""
    first = next(iter(run.origins.values()), {})
    program, analysis = run.program, run.analysis
    return Provenance(
        run=run.name,
        folder=str(run.folder),
        facts={
            "Made with": _versions(run, first),
            "Engine": figures.engine,
            "Processor": figures.cpu,
            "Gives the same on": _processors(run),
            "Inputs": "" if program is None else ", ".join(_shape(*named_shape) for named_shape in program.inputs.items()),
        },
        passes=None if program is None else [step.words(used_only=True) for step in program.history],
        analysis="" if analysis is None else f"{analysis.images:,} images, {analysis.stage} program",
        weights=first.get("source", ""),
        checksums=[
            (f"{name.rpartition('/')[0]}/{file}", digest)
            for name, origin in run.origins.items()
            for file, digest in origin.get("files", {}).items()
        ],
    )


def _shape(name: str, shape: tuple[int | None, ...]) -> str:
    return f"{name} ({', '.join('any' if size is None else str(size) for size in shape)})"


def _processors(run: Run) -> str:
    """Where the int8 files of a run are safe: weights of full range overflow without VNNI."""
    written = [origin["full_range"] for origin in run.origins.values() if isinstance(origin.get("full_range"), list)]
    if not written:
        return ""
    overflowing = max(written, key=len)
    if not overflowing:
        return "x86 processors with VNNI and without"
    return f"x86 processors with VNNI alone: without it, {len(overflowing)} layers overflow, {overflowing[0]!r} first"


def _versions(run: Run, origin: dict[str, Any]) -> str:
    engines = run.bench.get("versions")
    versions = {"quaver": origin.get("quaver", "")} | (engines if isinstance(engines, dict) else {})
    return ", ".join(f"{name} {value}" for name, value in versions.items() if value)
