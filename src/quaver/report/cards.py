"""The figures that come first: as cards for one run, as a table for two."""

from dataclasses import dataclass

from quaver.report.figures import Figures
from quaver.report.html import Html, join, tag
from quaver.report.words import MINUS, milliseconds, percent, points, size, times


@dataclass(frozen=True)
class Line:
    """A line of a card: what, how much, a bar for it (a share of the longest), and how it compares."""

    label: str
    value: str
    bar: float | None = None
    note: str = ""
    style: str = ""


def cards(figures: Figures) -> Html:
    """A card for accuracy or precision, for size, for speed and for agreement: those for which there are figures."""
    made = [_accuracy(figures), _precision(figures), _size(figures), _speed(figures), _agreement(figures)]
    return tag("div", [card for card in made if card is not None], class_="cards")


def _card(title: str, headline: str, note: str, lines: list[Line]) -> Html:
    return tag(
        "article",
        tag("h3", title),
        tag("p", headline, class_="headline"),
        tag("p", note or "\u00a0", class_="note"),
        tag("dl", [_line(line) for line in lines]),
        class_="card",
    )


def _line(line: Line) -> Html:
    bar = None
    if line.bar is not None:
        bar = tag("span", tag("span", style=f"width:{100 * line.bar:.1f}%"), class_=f"bar {line.style}", aria_hidden="true")
    return tag("div", tag("dt", line.label), tag("dd", line.value), line.note and tag("dd", line.note, class_="delta"), bar)


def _accuracy(figures: Figures) -> Html | None:
    return _stages("Top-1 accuracy", figures, "top1")


def _precision(figures: Figures) -> Html | None:
    return _stages("Average precision (mAP50)", figures, "map50")


def _stages(title: str, figures: Figures, measure: str) -> Html | None:
    """A measure in float, simulated and deployed."""
    values = {
        label: getattr(figures, f"{label.split()[0]}_{measure}") for label in ("float", "simulated int8", "deployed int8")
    }
    elsewhere = getattr(figures, f"elsewhere_{measure}")
    known = [(label, value) for label, value in values.items() if value is not None]
    if not known:
        return None
    reference = values["float"]
    lines = [
        Line(label, percent(value), note="" if reference is None or label == "float" else points(value - reference))
        for label, value in known
    ]
    if elsewhere is not None:  # other images: no difference to be told
        count = figures.elsewhere_images
        others = "other images" if count in (None, figures.images) else f"{count:,} images"
        lines.append(Line(f"deployed, {others}", percent(elsewhere)))
    label, value = known[-1]
    images = "" if figures.images is None else f" on {figures.images:,} images"
    return _card(title, percent(value), f"{label}{images}", lines)


def _size(figures: Figures) -> Html | None:
    return _two("Size", figures.float_bytes, figures.int8_bytes, size, "smaller", "weights")


def _speed(figures: Figures) -> Html | None:
    where = f" on {figures.engine}" if figures.engine else ""
    return _two("Speed", figures.float_ms, figures.int8_ms, milliseconds, "as fast", f"batch of {figures.batch}{where}")


def _two(title: str, first: float | None, second: float | None, words: object, better: str, note: str) -> Html | None:
    assert callable(words)
    pairs = [("float", first, "float"), ("int8", second, "int8")]
    known = [(label, value, style) for label, value, style in pairs if value is not None]
    if not known:
        return None
    longest = max(value for _, value, _ in known) or 1.0
    lines = [Line(label, words(value), bar=value / longest, style=style) for label, value, style in known]
    headline = words(known[-1][1])
    if first and second:
        headline = f"{times(first / second)} {better}"
        if better == "smaller" and second > first:
            headline = f"{times(second / first)} larger"
    return _card(title, headline, note, lines)


def _agreement(figures: Figures) -> Html | None:
    if figures.agreement is None:
        return None
    lines = [Line("same class", percent(figures.agreement))]
    if figures.integers_equal is not None:
        lines.append(Line("integers equal", percent(figures.integers_equal)))
    exact = figures.integers_equal == figures.agreement == 1.0
    note = "bit for bit what was trained" if exact else "of simulated and deployed"
    return _card("Agreement", percent(figures.agreement), note, lines)


# two runs


@dataclass(frozen=True)
class Measure:
    """A figure of two runs; ``more_is_better`` colours the change.

    ``over`` is the field that counts the images it was measured on: over another number, no change is told.
    """

    label: str
    field: str
    words: object
    more_is_better: bool
    in_points: bool = False
    over: str = ""


MEASURES = (
    Measure("Top-1, float", "float_top1", percent, True, True, "images"),
    Measure("Top-1, simulated int8", "simulated_top1", percent, True, True, "images"),
    Measure("Top-1, deployed int8", "deployed_top1", percent, True, True, "images"),
    Measure("mAP50, float", "float_map50", percent, True, True, "images"),
    Measure("mAP50, simulated int8", "simulated_map50", percent, True, True, "images"),
    Measure("mAP50, deployed int8", "deployed_map50", percent, True, True, "images"),
    Measure("Top-1, deployed, other images", "elsewhere_top1", percent, True, True, "elsewhere_images"),
    Measure("mAP50, deployed, other images", "elsewhere_map50", percent, True, True, "elsewhere_images"),
    Measure("Agreement of simulated and deployed", "agreement", percent, True, True, "deployed_images"),
    Measure("Integers equal, worst tensor", "integers_equal", percent, True, True, "deployed_images"),
    Measure("Size, float", "float_bytes", size, False),
    Measure("Size, int8", "int8_bytes", size, False),
    Measure("Time, float", "float_ms", milliseconds, False),
    Measure("Time, int8", "int8_ms", milliseconds, False),
    Measure("Speed, int8 over float", "speedup", times, True),
    Measure("Memory, int8", "int8_memory", size, False),
)


def comparison(first: Figures, second: Figures, names: tuple[str, str]) -> Html:
    """The figures of two runs, and what changed."""
    rows = []
    for measure in MEASURES:
        before, after = getattr(first, measure.field), getattr(second, measure.field)
        if before is None and after is None:
            continue
        over = [getattr(figures, measure.over) if measure.over else None for figures in (first, second)]
        alike = None in over or over[0] == over[1]
        told = not alike or measure.over == "elsewhere_images"
        cells = [_figure(measure, *one) for one in zip((before, after), over if told else (None, None), strict=True)]
        change = _change(measure, before, after) if alike else None
        rows.append(tag("tr", tag("th", measure.label, scope="row"), cells, tag("td", change, class_="n")))
    heads = [
        tag("th", scope="col"),
        *(tag("th", f"{one} · {name}", scope="col", class_="n") for one, name in zip("AB", names, strict=True)),
    ]
    caption = tag("caption", f"Figures of {names[0]} and {names[1]}", class_="unseen")
    head = tag("thead", tag("tr", heads, tag("th", "Change", scope="col", class_="n")))
    table = tag("table", caption, head, tag("tbody", rows), class_="plain")
    return tag("div", table, class_="wide", tabindex="0", role="region", aria_label="Figures, scrolls sideways")


def _figure(measure: Measure, value: float | None, images: int | None) -> Html:
    assert callable(measure.words)
    if value is None:
        return tag("td", class_="n")
    over = None if images is None else tag("span", f"of {images:,} images", class_="over")
    return tag("td", measure.words(value), over, class_="n")


def _change(measure: Measure, before: float | None, after: float | None) -> Html | None:
    if before is None or after is None:
        return None
    difference = after - before
    style = "same" if difference == 0 else "better" if (difference > 0) == measure.more_is_better else "worse"
    if measure.in_points:
        words = points(difference)
        style = "same" if words.startswith("±") else style
    else:
        share = round(100 * difference / before, 1) if before else 0.0
        words = f"{'±' if share == 0 else '+' if share > 0 else MINUS}{abs(share):.1f}\u202f%"
        style = "same" if share == 0 else style
    return tag("span", words, class_=style)


def sentence(name: str, figures: Figures) -> Html:
    """The run in one sentence."""
    parts: list[str] = []
    for words, before, simulated, deployed in (
        ("top-1", figures.float_top1, figures.simulated_top1, figures.deployed_top1),
        ("mAP50", figures.float_map50, figures.simulated_map50, figures.deployed_map50),
    ):
        final = simulated if deployed is None else deployed
        if final is not None and before is not None:
            parts.append(f"{percent(final)} {words} in int8, {percent(before)} in float")
    if figures.smaller is not None and figures.smaller >= 1:
        parts.append(f"{times(figures.smaller)} smaller")
    if figures.speedup is not None:
        parts.append(f"{times(figures.speedup)} as fast")
    where = f" on {figures.cpu}" if figures.cpu and figures.speedup is not None else ""
    return join("; ".join(parts), where, "." if parts else "")
