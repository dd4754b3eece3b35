"""The page: sections from records, one HTML file that needs nothing else."""

import base64
import hashlib
from dataclasses import asdict
from importlib.resources import files
from string import Template
from typing import Any

from quaver.analysis.records import TensorStatistics
from quaver.report.cards import cards, comparison, sentence
from quaver.report.curves import charts_of
from quaver.report.figures import Figures, figures_of
from quaver.report.gather import Run, is_figure, told_apart
from quaver.report.html import Html, embedded, join, tag
from quaver.report.layers import Row, counts, rows_of
from quaver.report.network import legend, network
from quaver.report.provenance import provenance_of
from quaver.report.table import anchors, comparison_table, layer_table
from quaver.report.words import percent

WORST = 6
"""Tensors whose histograms are shown large, those with the most noise."""


def page(runs: list[Run]) -> str:
    """The HTML of a report on one run, or on two side by side."""
    runs = told_apart(runs)
    found = [(run, figures_of(run), rows_of(run)) for run in runs]
    charts = charts_of(runs)
    sections = [
        ("figures", "Figures", _figures(found)),
        ("training", "Training", _training(len(charts))),
        ("layers", "Layers", _layers(found)),
        ("network", "Network", _networks(found)),
        ("activations", "Activations", _activations(found)),
        ("engine", "Why isn't it faster?", _findings(runs)),
        ("provenance", "Provenance", provenance_of([(run, figures) for run, figures, _ in found])),
        ("missing", "Not shown", _missing(runs)),
    ]
    there = [(name, title, content) for name, title, content in sections if content]
    names = [run.name for run in runs]
    title = " and ".join(names)
    body = join(
        tag(
            "div",
            tag("p", "Comparison" if len(runs) > 1 else "Report", class_="kind"),
            tag("h1", names[0], len(runs) > 1 and (tag("span", " → ", class_="quiet"), names[1])),
            tag("p", sentence(names[-1], found[-1][1]), class_="lede"),
            class_="title",
        ),
        *(
            tag("section", tag("h2", heading, id=f"{name}-title"), content, id=name, aria_labelledby=f"{name}-title")
            for name, heading, content in there
        ),
    )
    data = {"charts": [asdict(chart) for chart in charts], "runs": [_data(run, rows) for run, _, rows in found]}
    text = _filled(title, [(name, heading) for name, heading, _ in there], body, data)
    return text.encode("utf-8", "backslashreplace").decode()  # half a character, from a record that was tampered with


def _filled(title: str, sections: list[tuple[str, str]], body: Html, data: Any) -> str:
    from quaver import __version__

    assets = files("quaver.report").joinpath("assets")
    text = {name: assets.joinpath(name).read_text("utf-8") for name in ("page.html", "style.css", "theme.js", "script.js")}
    theme, script = text["theme.js"], text["script.js"]
    hashes = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in (theme, script)]
    links = join(*(tag("a", heading, href=f"#{name}") for name, heading in sections))
    return Template(text["page.html"]).substitute(
        version=join(__version__),
        hashes=" ".join(f"'sha256-{value}'" for value in hashes),
        title=join(f"{title} · Quaver report"),
        style=text["style.css"],
        theme=theme,
        navigation=links,
        body=body,
        footer=join(f"Quaver {__version__}. This file needs nothing but a browser."),
        data=embedded(data),
        script=script,
    )


# sections

Found = list[tuple[Run, Figures, list[Row]]]


def _figures(found: Found) -> Html | None:
    figures = [one for _, one, _ in found]
    if len(found) == 2:
        return comparison(figures[0], figures[1], (found[0][0].name, found[1][0].name))
    made = cards(figures[0])
    return made if "card" in made.split(">", 1)[1] else None


def _training(count: int) -> Html | None:
    if not count:
        return None
    return tag("div", [tag("figure", class_="chart", data_chart=index) for index in range(count)], class_="charts")


def _layers(found: Found) -> Html | None:
    rows = _joined(found)
    if not rows:
        return None
    if len(found) == 2:
        table = comparison_table(found[0][2], found[1][2], (found[0][0].name, found[1][0].name))
    else:
        table = layer_table(rows, _tensors(found[0][0]))
    return join(
        [_not_finite(run) for run, _, _ in found],
        _proposal(found[-1][0]),
        _controls(rows, comparing=len(found) == 2),
        tag("div", table, class_="wide", tabindex="0", role="region", aria_label="Table of layers, scrolls sideways"),
    )


def _joined(found: Found) -> list[Row]:
    """The layers of all runs, each name once, as the last run has it."""
    return list({row.name: row for _, _, rows in found for row in rows}.values())


def _controls(rows: list[Row], *, comparing: bool) -> Html:
    """The filter: words, precision, and whether fused ops have rows of their own."""
    number = counts(rows)
    kinds = [("", "all"), ("int8", "int8"), ("float", "float")]
    chips = [
        tag("button", words, type="button", class_="chip", data_kind=kind, aria_pressed="false" if kind else "true")
        for kind, words in kinds
    ]
    return tag(
        "div",
        tag(
            "label",
            tag("span", "Filter layers", class_="unseen"),
            tag(
                "input",
                id="filter",
                type="search",
                placeholder="Filter by name, type, reason …",
                autocomplete="off",
                spellcheck="false",
            ),
        ),
        tag("div", chips, class_="chips", role="group", aria_label="Precision"),
        number["fused"] > 0
        and tag("label", tag("input", id="fused", type="checkbox"), f"{number['fused']} fused ops as rows", class_="check"),
        comparing and tag("label", tag("input", id="changed", type="checkbox"), "only what differs", class_="check"),
        tag("output", id="count", class_="quiet", aria_live="polite"),
        class_="controls",
    )


def _not_finite(run: Run) -> list[Html]:
    found = {} if run.analysis is None else run.analysis.not_finite()
    return [tag("p", f"{run.name}: ", tag("code", name), f": {words}.", class_="trouble") for name, words in found.items()]


def _proposal(run: Run) -> Html | None:
    proposal = run.analysis.proposal if run.analysis is not None else None
    if proposal is None:
        return None
    drop = percent(proposal.target_drop)
    if not proposal.layers:
        words = join(f"Every layer can be quantized: on the images of the analysis, accuracy drops by at most {drop}.")
    else:
        patterns = ", ".join(repr(pattern) for pattern in proposal.not_quant_pattern)
        start = (
            f"To keep the drop at or below {drop}, leave " if proposal.reached else f"A drop of {drop} is not reached with "
        )
        score = "" if proposal.score.accuracy is None else f": {percent(proposal.score.accuracy)}"
        words = join(
            start,
            f"{len(proposal.layers)} layer{'s' * (len(proposal.layers) > 1)} float",
            score,
            ". ",
            tag("code", f"not_quant_pattern=[{patterns}]"),
        )
    return tag("p", words, class_="callout")


def _networks(found: Found) -> Html | None:
    ids = anchors(*(rows for _, _, rows in found))
    pictures = [(run, network(run, rows, ids)) for run, _, rows in found]
    made = [(run, picture) for run, picture in pictures if picture is not None]
    if not made:
        return None
    rows = [row for _, _, some in found for row in some]
    ways = ["precision"]
    ways += ["error"] if any(row.sqnr_db is not None for row in rows) else []
    ways += ["time"] if any(row.share is not None for row in rows) else []
    radios = [
        tag("label", tag("input", type="radio", name="colour", value=way, id=f"by-{way}", checked=way == "precision"), way)
        for way in ways
    ]
    return join(
        tag(
            "div",
            tag(
                "fieldset",
                tag("legend", "Colour by", class_="unseen"),
                radios,
                class_="switch" if len(ways) > 1 else "unseen",
            ),
            legend(rows),
            class_="controls",
        ),
        *(
            tag(
                "div",
                len(made) > 1 and tag("h3", run.name),
                tag("div", picture, class_="wide picture", tabindex="0", role="region", aria_label=f"Network of {run.name}"),
            )
            for run, picture in made
        ),
    )


def _activations(found: Found) -> Html | None:
    """The tensors with the most noise, large; all others open from the table."""
    run = found[-1][0]
    if run.analysis is None:
        return None
    noisy = [tensor for tensor in run.analysis.tensors if tensor.rounded and tensor.sqnr_db is not None]
    worst = sorted(noisy, key=lambda tensor: tensor.sqnr_db or 0.0)[:WORST]
    if not worst:
        return None
    names = [tensor.name for tensor in run.analysis.tensors]
    figures = [
        tag("figure", class_="histogram", data_run=len(found) - 1, data_tensor=names.index(tensor.name)) for tensor in worst
    ]
    return join(
        tag(
            "p",
            f"The {len(worst)} activations with the most rounding noise, over {run.analysis.images:,} images. A layer's "
            "name in the table opens its own.",
            class_="quiet",
        ),
        tag("div", figures, class_="histograms"),
    )


def _findings(runs: list[Run]) -> Html | None:
    """What quaver bench found: the longest first."""
    profiles = runs[-1].bench.get("profiles", [])
    found: list[Any] = next((profile["findings"] for profile in profiles if profile.get("findings")), [])
    rows = []
    for one in found[:12]:
        cells = [one.get("kind", ""), one.get("layer", ""), one.get("why", ""), one.get("remedy", "")]
        share = one.get("share")
        shown = percent(share, 1) if is_figure(share) else ""
        rows.append(tag("tr", tag("td", shown, class_="n"), [tag("td", cell) for cell in cells]))
    if not rows:
        return None
    heads = [tag("th", words, scope="col") for words in ("What", "Where", "Why", "What would remove it")]
    head = tag("thead", tag("tr", tag("th", "Time", scope="col", class_="n"), heads))
    caption = tag("caption", "Float layers, roundings and reorders", class_="unseen")
    table = tag("table", caption, head, tag("tbody", rows), class_="plain findings")
    return tag("div", table, class_="wide", tabindex="0", role="region", aria_label="Findings, scrolls sideways")


def _missing(runs: list[Run]) -> Html | None:
    """What is not there, with the command that makes it; and what could not be read."""
    items = [
        tag("li", tag("span", f"{run.name}: " if len(runs) > 1 else "", what), tag("code", command))
        for run in runs
        for what, command in run.missing
    ]
    troubles = [tag("li", trouble, class_="trouble") for run in runs for trouble in run.troubles]
    if not items and not troubles:
        return None
    return tag("ul", troubles, items, class_="missing")


# data for the script


def _tensors(run: Run) -> dict[str, TensorStatistics]:
    return {} if run.analysis is None else {tensor.name: tensor for tensor in run.analysis.tensors}


def _data(run: Run, rows: list[Row]) -> dict[str, Any]:
    """What the script draws: histograms, and the details of each layer."""
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
    return {"name": run.name, "tensors": tensors, "weights": weights, "layers": layers}


def _spread(one: Any) -> dict[str, Any]:
    """A tensor or a weight as the script draws it, in as many digits as a screen shows."""

    def short(value: float) -> float:
        return float(f"{value:.5g}")

    histogram = one.histogram
    is_tensor = isinstance(one, TensorStatistics)
    return {
        "name": one.name,
        "start": short(histogram.start),
        "end": short(histogram.end),
        "counts": histogram.counts,
        "bits": one.bits,
        "signed": one.signed if is_tensor else True,
        "threshold": short(one.threshold if is_tensor else one.thresholds[1]),
        "largest": short(one.largest),
        "movingMax": short(one.moving_max) if is_tensor else None,
        "best": short(one.best_threshold) if is_tensor else None,
        "percentiles": {share: short(value) for share, value in one.percentiles.items()},
        "zeros": short(one.zeros),
        "clipped": short(one.clipped),
        "bounded": None if is_tensor else short(one.bounded),
        "dB": None if one.sqnr_db is None else short(one.sqnr_db),
    }
