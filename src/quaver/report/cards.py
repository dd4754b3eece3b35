"""The figures that come first: as cards for one run, as a table for two."""

from collections.abc import Callable
from dataclasses import dataclass

from quaver.report.headline import Figures
from quaver.report.number_format import Styled, change, milliseconds, percent, points, signed, size, times


@dataclass(frozen=True)
class CardLine:
    """A line of a card: what, how much, a bar for it (a share of the longest), and how it compares."""

    label: str
    value: str
    bar: float | None = None
    note: str = ""
    style: str = ""


@dataclass(frozen=True)
class Card:
    """A figure, large, with a note below it and its parts as lines."""

    title: str
    headline: str
    note: str
    lines: list[CardLine]


def cards(figures: Figures) -> list[Card]:
    """A card for accuracy or precision, for size, for speed and for agreement: those for which there are figures."""
    where = f" on {figures.engine}" if figures.engine else ""
    batch = f"batch of {figures.batch}{where}"
    made = [
        _stages("Top-1 accuracy", figures, "top1"),
        _stages("Average precision (mAP50)", figures, "map50"),
        _two("Size", figures.float_bytes, figures.int8_bytes, size, "smaller", "weights"),
        _two("Speed", figures.float_ms, figures.int8_ms, milliseconds, "as fast", batch),
        _agreement(figures),
    ]
    return [card for card in made if card is not None]


def _stages(title: str, figures: Figures, measure: str) -> Card | None:
    """A measure in float, simulated and deployed."""
    values = {
        label: getattr(figures, f"{label.split()[0]}_{measure}") for label in ("float", "simulated int8", "deployed int8")
    }
    elsewhere = getattr(figures, f"elsewhere_{measure}")
    measured = [(label, value) for label, value in values.items() if value is not None]
    if not measured:
        return None
    reference = values["float"]
    lines = [
        CardLine(label, percent(value), note="" if reference is None or label == "float" else points(value - reference))
        for label, value in measured
    ]
    if elsewhere is not None:  # other images: no difference to be told
        count = figures.elsewhere_images
        others = "other images" if count in (None, figures.images) else f"{count:,} images"
        lines.append(CardLine(f"deployed, {others}", percent(elsewhere)))
    label, value = measured[-1]
    images = "" if figures.images is None else f" on {figures.images:,} images"
    return Card(title, percent(value), f"{label}{images}", lines)


def _two(
    title: str, first: float | None, second: float | None, formatted: Callable[[float], str], better: str, note: str
) -> Card | None:
    """A figure of float and of int8, each with a bar."""
    values = {label: value for label, value in (("float", first), ("int8", second)) if value is not None}
    if not values:
        return None
    longest = max(values.values()) or 1.0
    lines = [CardLine(label, formatted(value), bar=value / longest, style=label) for label, value in values.items()]
    headline = lines[-1].value
    if first and second:
        headline = f"{times(first / second)} {better}"
        if better == "smaller" and second > first:
            headline = f"{times(second / first)} larger"
    return Card(title, headline, note, lines)


def _agreement(figures: Figures) -> Card | None:
    if figures.agreement is None:
        return None
    lines = [
        CardLine("values within a step" if figures.agreement_unit == "values" else "same class", percent(figures.agreement))
    ]
    if figures.integers_equal is not None:
        lines.append(CardLine("integers equal", percent(figures.integers_equal)))
    exact = figures.integers_equal == figures.agreement == 1.0
    note = "bit for bit what was trained" if exact else "of simulated and deployed"
    return Card("Agreement", percent(figures.agreement), note, lines)


# two runs


@dataclass(frozen=True)
class Measure:
    """A figure of two runs; ``more_is_better`` colours the change.

    ``over`` is the field that counts the images it was measured on: over another number, no change is told.
    """

    label: str
    field: str
    format: Callable[[float], str]
    more_is_better: bool = True
    over: str = ""


MEASURES = (
    Measure("Top-1, float", "float_top1", percent, over="images"),
    Measure("Top-1, simulated int8", "simulated_top1", percent, over="images"),
    Measure("Top-1, deployed int8", "deployed_top1", percent, over="images"),
    Measure("mAP50, float", "float_map50", percent, over="images"),
    Measure("mAP50, simulated int8", "simulated_map50", percent, over="images"),
    Measure("mAP50, deployed int8", "deployed_map50", percent, over="images"),
    Measure("Top-1, deployed, other images", "elsewhere_top1", percent, over="elsewhere_images"),
    Measure("mAP50, deployed, other images", "elsewhere_map50", percent, over="elsewhere_images"),
    Measure("Agreement of simulated and deployed", "agreement", percent, over="deployed_images"),
    Measure("Integers equal, worst tensor", "integers_equal", percent, over="deployed_images"),
    Measure("Size, float", "float_bytes", size, more_is_better=False),
    Measure("Size, int8", "int8_bytes", size, more_is_better=False),
    Measure("Time, float", "float_ms", milliseconds, more_is_better=False),
    Measure("Time, int8", "int8_ms", milliseconds, more_is_better=False),
    Measure("Speed, int8 over float", "speedup", times),
    Measure("Memory, int8", "int8_memory", size, more_is_better=False),
)


@dataclass(frozen=True)
class Compared:
    """A figure of two runs: each in words and with the number of images to name beside it, and what changed."""

    label: str
    figures: list[tuple[str, int | None]]
    change: Styled | None


def comparison(first: Figures, second: Figures) -> list[Compared]:
    """The figures that at least one of two runs has."""
    return [row for row in (_compared(measure, first, second) for measure in MEASURES) if row is not None]


def _compared(measure: Measure, *runs: Figures) -> Compared | None:
    values = [getattr(figures, measure.field) for figures in runs]
    if values == [None, None]:
        return None
    over = [getattr(figures, measure.over) if measure.over else None for figures in runs]
    alike = None in over or over[0] == over[1]
    told = not alike or measure.over == "elsewhere_images"
    shown = [
        ("", None) if value is None else (measure.format(value), images if told else None)
        for value, images in zip(values, over, strict=True)
    ]
    return Compared(measure.label, shown, _change(measure, *values) if alike and None not in values else None)


def _change(measure: Measure, before: float, after: float) -> Styled:
    if measure.format is percent:
        difference = points(after - before)
    else:
        difference = f"{signed(100 * (after - before) / before if before else 0.0, 1)}\u202f%"
    return change(difference, more_is_better=measure.more_is_better)


def sentence(figures: Figures) -> str:
    """The run in one sentence."""
    parts: list[str] = []
    for measure, before, simulated, deployed in (
        ("top-1", figures.float_top1, figures.simulated_top1, figures.deployed_top1),
        ("mAP50", figures.float_map50, figures.simulated_map50, figures.deployed_map50),
    ):
        final = simulated if deployed is None else deployed
        if final is not None and before is not None:
            parts.append(f"{percent(final)} {measure} in int8, {percent(before)} in float")
    if figures.smaller is not None and figures.smaller >= 1:
        parts.append(f"{times(figures.smaller)} smaller")
    if figures.speedup is not None:
        parts.append(f"{times(figures.speedup)} as fast")
    where = f" on {figures.cpu}" if figures.cpu and figures.speedup is not None else ""
    return f"{'; '.join(parts)}{where}{'.' if parts else ''}"
