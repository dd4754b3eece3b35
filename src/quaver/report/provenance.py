"""Where a run comes from: versions, passes, machine, checksums."""

from typing import Any

from quaver.report.figures import Figures
from quaver.report.gather import Run
from quaver.report.html import Html, join, tag


def provenance_of(found: list[tuple[Run, Figures]]) -> Html | None:
    """A list for each run."""
    made = [(run, _entries(run, figures)) for run, figures in found]
    parts = [
        tag("div", len(found) > 1 and tag("h3", run.name), tag("dl", entries, class_="facts"))
        for run, entries in made
        if entries
    ]
    return join(*parts) if parts else None


def _entries(run: Run, figures: Figures) -> list[Html]:
    facts: list[tuple[str, Any]] = [("Folder", tag("code", str(run.folder)))]
    first = next(iter(run.origins.values()), {})
    facts.append(("Made with", _versions(run, first)))
    if figures.engine:
        facts.append(("Engine", figures.engine))
    if figures.cpu:
        facts.append(("Processor", figures.cpu))
    facts.append(("Gives the same on", _processors(run)))
    if run.program is not None:
        shapes = [
            f"{name} ({', '.join('any' if size is None else str(size) for size in shape)})"
            for name, shape in run.program.inputs.items()
        ]
        facts.append(("Inputs", ", ".join(shapes)))
        passes = [tag("li", tag("code", step.words(used_only=True))) for step in run.program.history]
        facts.append(("Passes", tag("ol", passes)))
    if run.analysis is not None:
        facts.append(("Analysis", f"{run.analysis.images:,} images, {run.analysis.stage} program"))
    if first.get("source"):
        facts.append(("Weights", tag("code", f"sha256 {first['source']}")))
    sums = [
        tag("li", tag("span", f"{name.rpartition('/')[0]}/{file}"), tag("code", digest))
        for name, origin in run.origins.items()
        for file, digest in origin.get("files", {}).items()
    ]
    if sums:
        title = tag("summary", f"{len(sums)} checksums")
        facts.append(("Files", tag("details", title, tag("ul", sums, class_="sums"))))
    return [tag("div", tag("dt", label), tag("dd", value)) for label, value in facts if value]


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
