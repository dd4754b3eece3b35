"""The table of layers: of one run, or of two side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quaver.analysis.records import TensorStatistics
from quaver.report.html import Html, tag
from quaver.report.layers import Row
from quaver.report.network import ERROR_STEPS
from quaver.report.sparkline import sparkline
from quaver.report.words import MINUS, decibels, number, percent, points

Cell = tuple[Any, Any]
"""What is shown, and what it is sorted by (None: last)."""

Pair = tuple[Row | None, Row | None]


EXECUTED = {"i8": "int8", "u8": "int8", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""An engine's words for what it computes on, as people say them."""


@dataclass(frozen=True)
class Column:
    """A column: its title, a word of explanation, and the cell of a row."""

    title: str
    help: str
    cell: Callable[[Any], Cell]
    style: str = ""

    @property
    def first(self) -> str:
        """How it is sorted when its title is first pressed: the worst on top, names from A to Z."""
        return (
            "descending" if self.style == "n" and not self.title.startswith(("#", "Error", "Δ dB", "Alone")) else "ascending"
        )


def anchors(*runs: list[Row]) -> dict[str, str]:
    """The id of each row of the table, by the layer's name: layers of two runs that share a name share a row."""
    names = dict.fromkeys(row.name for rows in reversed(runs) for row in rows)
    return {name: f"layer-{index}" for index, name in enumerate(names)}


def layer_table(rows: list[Row], tensors: dict[str, TensorStatistics]) -> Html:
    """Every layer of a run; columns for which there is nothing are left out."""
    columns = [column for column in _columns(rows, tensors) if any(column.cell(row)[1] not in (None, "") for row in rows)]
    ids = anchors(rows)
    return _table(columns, rows, lambda row: _attributes(row, ids), "Layers of the network")


def comparison_table(first: list[Row], second: list[Row], names: tuple[str, str]) -> Html:
    """The layers of two runs, joined by name, in the order of the second with what only the first has at the end."""
    known, other = {row.name: row for row in first}, {row.name: row for row in second}
    pairs: list[Pair] = [(known.get(row.name), row) for row in second]
    pairs += [(row, None) for row in first if row.name not in other]
    known_columns = _paired(first, second, names)
    columns = [column for column in known_columns if any(column.cell(pair)[1] not in (None, "") for pair in pairs)]
    ids = anchors(first, second)

    def attributes(pair: Pair) -> dict[str, Any]:
        row = pair[1] or pair[0]
        assert row is not None
        same = all(side is not None for side in pair) and _state(pair[0]) == _state(pair[1])
        return _attributes(row, ids) | {"data_same": "yes" if same else "no"}

    return _table(columns, pairs, attributes, f"Layers of {names[0]} and {names[1]}")


def _state(row: Row | None) -> tuple[Any, ...]:
    """What must be equal for a layer to be the same in two runs."""
    if row is None:
        return ()
    return row.precision, row.executed, row.bits, row.thresholds.get("input"), row.thresholds.get("weight")


def _attributes(row: Row, ids: dict[str, str]) -> dict[str, Any]:
    words = " ".join([row.name, row.type, row.precision, row.executed, row.reason]).lower()
    return {"id": ids[row.name], "data_kind": _kind(row), "data_words": words}


def _kind(row: Row) -> str:
    if row.precision == "fused":
        return "fused"
    return "float" if row.is_float else "int8"


def _table(columns: list[Column], rows: list[Any], attributes: Callable[[Any], dict[str, Any]], caption: str) -> Html:
    head = [
        tag(
            "th",
            tag("button", column.title, tag("span", class_="arrow", aria_hidden="true"), type="button", title=column.help),
            scope="col",
            class_=column.style or None,
            aria_sort="ascending" if column.title == "#" else "none",
            data_first=column.first,
        )
        for column in columns
    ]
    body = [tag("tr", [_cell(column, row) for column in columns], **attributes(row)) for row in rows]
    return tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", head)),
        tag("tbody", body),
        class_="layers",
    )


def _cell(column: Column, row: Any) -> Html:
    shown, by = column.cell(row)
    name = "th" if column.style == "name" else "td"
    scope = "row" if name == "th" else None
    return tag(name, shown, class_=column.style or None, data_v="" if by is None else by, scope=scope)


# one run


def _columns(rows: list[Row], tensors: dict[str, TensorStatistics]) -> list[Column]:
    return [
        Column("#", "Place in the network", lambda row: (row.place or "", row.index), "n"),
        Column("Layer", "Name in the model, what is computed with it in one step, and why it is float", _layer, "name"),
        Column("Type", "What the layer computes", lambda row: (row.type, row.type)),
        Column("Bits", "Bits of weight (W) and activation (A)", lambda row: (row.bits, row.bits)),
        Column("Runs in", "What the engine computed it in; without quaver bench, what the program says", _precision),
        Column("Input", "Threshold of the input: the largest value that is not clipped", _threshold("input"), "n"),
        Column("Weight", "Thresholds of the weight: the largest of its channels", _threshold("weight"), "n"),
        Column("Output", "Threshold of the output", _threshold("output"), "n"),
        Column(
            "Spread",
            "Spread of the input, counts on a log scale, the threshold as a line; sorts by clipped",
            _spread(tensors),
        ),
        _error_column(rows, _error),
        Column("Clipped", "Share of the input's values that saturate", lambda row: _rare(row.clipped), "n"),
        Column("Alone", "Accuracy with only this layer quantized", lambda row: _share(row.only, 2), "n"),
        Column("Without", "Accuracy with all layers but this one quantized", lambda row: _share(row.without, 2), "n"),
        Column("µs", "Time in the engine, in microseconds", _time, "n"),
        Column("Differs", "Share of its integers that the engine computes otherwise", lambda row: _rare(row.differ), "n"),
    ]


def _layer(row: Row) -> Cell:
    return (_name(row), _why(row)), row.name


def _name(row: Row) -> list[Html]:
    with_it = [tag("span", "".join(f" + {kind}" for kind in row.fused), class_="with")] if row.fused else []
    return [tag("button", row.name, type="button", class_="open", aria_expanded="false"), *with_it]


def _why(row: Row, whose: str = "") -> Html | None:
    """Why it is float, or what it is part of: below its name, where no width of the window hides it."""
    if not row.reason:
        return None
    return tag("span", whose, "" if row.precision == "fused" else "float: ", row.reason, class_="why")


def _precision(row: Row | None) -> Cell:
    if row is None:
        return "", None
    words = EXECUTED.get(row.executed, row.executed) or row.precision
    return tag("span", words, class_=f"badge {_kind(row)}"), words


def _threshold(role: str) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        found = [value for name, values in row.thresholds.items() if name.startswith(role) for value in values]
        return (aligned(number(max(found))), max(found)) if found else ("", None)

    return cell


def aligned(text: str) -> Any:
    """A number whose point stands below that of the others in its column."""
    whole, point, rest = text.partition(".")
    return (whole, tag("span", point + rest, class_="rest"))


def _spread(tensors: dict[str, TensorStatistics]) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        tensor = next((tensors[name] for name in row.tensors if name in tensors), None)
        return ("", None) if tensor is None else (sparkline(tensor), tensor.clipped)

    return cell


def _error_column(rows: list[Row], cell: Callable[[Any], Cell], side: str = "") -> Column:
    if any(row.error_of_input for row in rows):
        title, parts = f"Error, input only{side}", "of the input alone: of weights, a frozen program has only the integers"
    else:
        title, parts = f"Error{side}", "input and weight together: the smaller, the worse"
    return Column(title, f"Signal to rounding noise in dB, {parts}", cell, "n")


def _error(row: Row | None) -> Cell:
    if row is None or row.sqnr_db is None:
        return "", None
    level = sum(row.sqnr_db < step for step in ERROR_STEPS)
    return (tag("span", class_=f"swatch e{level}", aria_hidden="true"), decibels(row.sqnr_db)), row.sqnr_db


def _share(value: float | None, digits: int) -> Cell:
    if value is None:
        return "", None
    return ("0", 0) if value == 0 else (percent(value, digits), value)


def _rare(value: float | None) -> Cell:
    if value is None:
        return "", None
    return ("0" if value == 0 else "<\u202f0.001\u202f%" if value < 1e-5 else percent(value, 3)), value


def _time(row: Row | None) -> Cell:
    if row is None or row.microseconds is None:
        return "", None
    return f"{row.microseconds:,.1f}", row.microseconds


# two runs


def _paired(first: list[Row], second: list[Row], names: tuple[str, str]) -> list[Column]:
    def both(title: str, help_: str, cell: Callable[[Row | None], Cell], style: str = "") -> list[Column]:
        return [
            Column(f"{title} A", f"{help_}, in {names[0]}", lambda pair: cell(pair[0]), style),
            Column(f"{title} B", f"{help_}, in {names[1]}", lambda pair: cell(pair[1]), style),
        ]

    return [
        Column(
            "Layer", "Name in the model, what is computed with it in one step, and why it is float", _layer_of_both, "name"
        ),
        Column("Type", "What the layer computes", lambda pair: ((pair[1] or pair[0]).type,) * 2),
        *both("Runs in", "What the engine computed it in, or what the program says", _precision),
        *both("Bits", "Bits of weight (W) and activation (A)", lambda row: (row.bits, row.bits) if row else ("", None)),
        *both("Input", "Threshold of the input", lambda row: _threshold("input")(row) if row else ("", None), "n"),
        _error_column(first, lambda pair: _error(pair[0]), " A"),
        _error_column(second, lambda pair: _error(pair[1]), " B"),
        Column("Δ dB", "Change of signal to noise, where both count the weight's: more is better", _change_of_error, "n"),
        *both("µs", "Time in the engine", _time, "n"),
        Column("Δ time", "Change of the time in the engine", _change_of_time, "n"),
    ]


def _layer_of_both(pair: Pair) -> Cell:
    sides = [(whose, row) for whose, row in zip(("A ", "B "), pair, strict=True) if row is not None]
    row = sides[-1][1]
    if len({(side.precision, side.reason) for _, side in sides}) == 1:
        return _layer(row)
    return (_name(row), [_why(side, whose) for whose, side in sides]), row.name


def _change_of_error(pair: Pair) -> Cell:
    """The difference of two errors of the same parts: an int8 program's weights are rounded before it is analysed."""
    first, second = pair
    if first is None or second is None or first.sqnr_db is None or second.sqnr_db is None:
        return "", None
    if (first.weight_sqnr_db is None) != (second.weight_sqnr_db is None):
        return "", None
    change = second.sqnr_db - first.sqnr_db
    return signed(change), change


def signed(change: float) -> Html:
    """A change for the better or for the worse."""
    rounded = round(change, 1)
    style = "better" if rounded > 0 else "worse" if rounded < 0 else "same"
    return tag("span", f"{'+' if rounded > 0 else MINUS if rounded < 0 else '±'}{abs(rounded):.1f}", class_=style)


def _change_of_time(pair: Pair) -> Cell:
    first, second = (side.microseconds if side else None for side in pair)
    if not first or second is None:
        return "", None
    change = second / first - 1
    style = "worse" if change > 0.005 else "better" if change < -0.005 else "same"
    return tag("span", f"{points(change)[:-3] if abs(change) >= 0.1 else points(change)[:-1]}\u202f%", class_=style), change
