"""The page: sections from records, one HTML file that needs nothing else."""

import base64
import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from quaver.analysis.findings import Proposal
from quaver.report.cards import Card, Compared, cards, comparison, sentence
from quaver.report.curves import charts_of
from quaver.report.gather import Run, is_figure, told_apart
from quaver.report.headline import Figures, figures_of
from quaver.report.layer_rows import Row, rows_of
from quaver.report.network import Picture, legend, network
from quaver.report.number_format import percent
from quaver.report.origin import provenance_of
from quaver.report.rendering import asset, rendered
from quaver.report.script_data import drawn
from quaver.report.table import LayerTable, anchors, comparison_table, layer_table

WORST = 6
"""Tensors whose histograms are shown large, those with the most noise."""
FINDINGS = 12
"""What quaver bench found that is shown, the longest first."""


@dataclass(frozen=True)
class Read:
    """A run, and what its records come to."""

    run: Run
    figures: Figures
    rows: list[Row]


@dataclass(frozen=True)
class Section:
    """A part of the page: its name in links, its heading, and its content, None or empty where there is nothing to show."""

    name: str
    title: str
    content: Any
    shape: str = ""

    @property
    def template(self) -> str:
        """The file that shows it."""
        return f"{self.shape or self.name}.html"


def page(runs: list[Run]) -> str:
    """The HTML of a report on one run, or on two side by side."""
    from quaver import __version__

    runs = told_apart(runs)
    read = [Read(run, figures_of(run), rows_of(run)) for run in runs]
    charts = charts_of(runs)
    comparing = len(read) > 1
    sections = [
        Section("figures", "Figures", _figures(read), "comparison" if comparing else "cards"),
        Section("training", "Training", charts),
        Section("layers", "Layers", _layers(read)),
        Section("network", "Network", _networks(read)),
        Section("activations", "Activations", _activations(runs[-1])),
        Section("engine", "Why isn't it faster?", _findings(runs[-1])),
        Section("provenance", "Provenance", [provenance_of(report.run, report.figures) for report in read]),
        Section("missing", "Not shown", [run for run in runs if run.missing or run.troubles]),
    ]
    theme, script = asset("theme.js"), asset("script.js")
    text = rendered(
        "page.html",
        version=__version__,
        hashes=" ".join(map(_hash, (theme, script))),
        style=asset("style.css"),
        theme=theme,
        script=script,
        names=[run.name for run in runs],
        comparing=comparing,
        lede=sentence(read[-1].figures),
        sections=[section for section in sections if section.content],
        data={"charts": [asdict(chart) for chart in charts], "runs": [drawn(report.run, report.rows) for report in read]},
    )
    return text.encode("utf-8", "backslashreplace").decode()  # half a character, from a record that was tampered with


def _hash(code: str) -> str:
    """A script as the page's security policy names it, so that no other one runs."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def _figures(read: list[Read]) -> list[Card] | list[Compared]:
    return comparison(read[0].figures, read[1].figures) if len(read) == 2 else cards(read[0].figures)


@dataclass(frozen=True)
class Layers:
    """The table of layers, and what stands above it; ``not_finite`` names runs, tensors in them, and what is wrong."""

    not_finite: list[tuple[str, str, str]]
    proposal: Proposal | None
    fused: int
    table: LayerTable


def _layers(read: list[Read]) -> Layers | None:
    rows = list({row.name: row for report in read for row in report.rows}.values())  # each name once, as the last run has it
    if not rows:
        return None
    if len(read) == 2:
        table = comparison_table(read[0].rows, read[1].rows, (read[0].run.name, read[1].run.name))
    else:
        table = layer_table(rows)
    analyses = {report.run.name: report.run.analysis for report in read if report.run.analysis is not None}
    last = read[-1].run.analysis
    return Layers(
        [(name, *item) for name, analysis in analyses.items() for item in analysis.not_finite().items()],
        None if last is None else last.proposal,
        sum(row.precision == "fused" for row in rows),
        table,
    )


@dataclass(frozen=True)
class Networks:
    """The pictures of all runs that have one, and what their colours mean."""

    legend: dict[str, list[tuple[str, str]]]
    pictures: list[Picture]


def _networks(read: list[Read]) -> Networks | None:
    ids = anchors(*(report.rows for report in read))
    pictures = [network(report.run, report.rows, ids) for report in read]
    there = [picture for picture in pictures if picture is not None]
    return Networks(legend([row for report in read for row in report.rows]), there) if there else None


@dataclass(frozen=True)
class Activations:
    """The activations that are shown large, by their index in the analysis, and the images it saw."""

    tensors: list[int]
    images: int


def _activations(run: Run) -> Activations | None:
    """The tensors with the most noise, large; all others open from the table."""
    if run.analysis is None:
        return None
    noise = {
        index: tensor.sqnr_db
        for index, tensor in enumerate(run.analysis.tensors)
        if tensor.rounded and tensor.sqnr_db is not None
    }
    worst = sorted(noise, key=noise.__getitem__)[:WORST]
    return Activations(worst, run.analysis.images) if worst else None


def _findings(run: Run) -> list[tuple[str, list[str]]]:
    """Each as its share of the time, and what it is, where, why, and what would remove it."""
    profiles = run.bench.get("profiles", [])
    findings: list[Any] = next((profile["findings"] for profile in profiles if profile.get("findings")), [])
    return [
        (
            percent(finding["share"], 1) if is_figure(finding.get("share")) else "",
            [finding.get(key, "") for key in ("kind", "layer", "why", "remedy")],
        )
        for finding in findings[:FINDINGS]
    ]
