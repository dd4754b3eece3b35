"""The table of layers: of one run, or of two side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quaver.report.layer_rows import Row
from quaver.report.network import error_style
from quaver.report.number_format import Styled, change, decibels, number, percent, points, signed
from quaver.report.sparkline import sparkline

Cell = tuple[Any, Any]
"""What is shown, and what it is sorted by (None: nothing is shown, and it comes last)."""

Pair = tuple[Row | None, Row | None]

EMPTY: Cell = ("", None)

EXECUTED = {"i8": "int8", "u8": "int8", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""An engine's words for what it computes on, as people say them."""


@dataclass(frozen=True)
class Column:
    """A column: its title, a word of explanation, the cell of a row, and the macro of cells.html that shows it."""

    title: str
    help: str
    cell: Callable[[Any], Cell]
    style: str = ""
    shown_as: str = "text"

    @property
    def first(self) -> str:
        """How it is sorted when its title is first pressed: the worst on top, names from A to Z."""
        rising = ("#", "Error", "Δ dB", "Alone")
        return "descending" if self.style == "n" and not self.title.startswith(rising) else "ascending"


@dataclass(frozen=True)
class TableRow:
    """A layer in the table; ``search_text`` is what the filter looks in, ``same`` is whether two runs agree on it."""

    id: str
    kind: str
    search_text: str
    same: bool
    cells: list[Cell]


@dataclass(frozen=True)
class LayerTable:
    """The table of layers."""

    columns: list[Column]
    rows: list[TableRow]


@dataclass(frozen=True)
class LayerCell:
    """A layer's name, what is computed with it, and why it is float or what it is part of.

    The reasons stand below the name, where no width of the window hides them.
    """

    name: str
    fused: list[str]
    reasons: list[str]


def anchors(*runs: list[Row]) -> dict[str, str]:
    """The id of each row of the table, by the layer's name: layers of two runs that share a name share a row."""
    names = dict.fromkeys(row.name for rows in reversed(runs) for row in rows)
    return {name: f"layer-{index}" for index, name in enumerate(names)}


def layer_table(rows: list[Row]) -> LayerTable:
    """Every layer of a run; columns for which there is nothing are left out."""
    return _table(_columns(rows), rows, [(row, row) for row in rows], anchors(rows))


def comparison_table(first: list[Row], second: list[Row], names: tuple[str, str]) -> LayerTable:
    """The layers of two runs, joined by name, in the order of the second with what only the first has at the end."""
    before, after = {row.name: row for row in first}, {row.name: row for row in second}
    pairs: list[Pair] = [(before.get(row.name), row) for row in second]
    pairs += [(row, None) for row in first if row.name not in after]
    return _table(_paired(first, second, names), pairs, pairs, anchors(first, second))


def _table(columns: list[Column], items: list[Any], pairs: list[Pair], ids: dict[str, str]) -> LayerTable:
    """The table of what ``columns`` show of ``items``, which are the rows of one run or the ``pairs`` of two."""
    cells = [[column.cell(item) for item in items] for column in columns]
    filled = [index for index, column in enumerate(cells) if any(by not in (None, "") for _, by in column)]
    rows = []
    for place, pair in enumerate(pairs):
        row = pair[1] or pair[0]
        assert row is not None
        searched = " ".join([row.name, row.type, row.precision, row.executed, row.reason]).lower()
        same = None not in pair and _state(pair[0]) == _state(pair[1])
        rows.append(TableRow(ids[row.name], _kind(row), searched, same, [cells[index][place] for index in filled]))
    return LayerTable([columns[index] for index in filled], rows)


def _state(row: Row | None) -> tuple[Any, ...]:
    """What must be equal for a layer to be the same in two runs."""
    if row is None:
        return ()
    return row.precision, row.executed, row.bits, row.thresholds.get("input"), row.thresholds.get("weight")


def _kind(row: Row) -> str:
    if row.precision == "fused":
        return "fused"
    return "float" if row.is_float else "int8"


# one run

LAYER = "Name in the model, what is computed with it in one step, and why it is float"
TYPE = "What the layer computes"
BITS = "Bits of weight (W) and activation (A)"
RUNS_IN = "What the engine computed it in; without quaver bench, what the program says"
INPUT = "Threshold of the input: the largest value that is not clipped"
SPREAD = "Spread of the input, counts on a log scale, the threshold as a line; sorts by clipped"
DELTA_DB = "Change of signal to noise, where both count the weight's: more is better"


def _columns(rows: list[Row]) -> list[Column]:
    return [
        Column("#", "Place in the network", lambda row: (row.place or "", row.index), "n"),
        Column("Layer", LAYER, lambda row: _layer(("", row)), "name", "layer"),
        Column("Type", TYPE, lambda row: (row.type, row.type)),
        Column("Bits", BITS, _bits),
        Column("Runs in", RUNS_IN, _precision, shown_as="badge"),
        Column("Input", INPUT, _threshold("input"), "n", "aligned"),
        Column("Weight", "Thresholds of the weight: the largest of its channels", _threshold("weight"), "n", "aligned"),
        Column("Output", "Threshold of the output", _threshold("output"), "n", "aligned"),
        Column("Spread", SPREAD, _spread, shown_as="sparkline"),
        _error_column(rows, _error),
        Column("Clipped", "Share of the input's values that saturate", lambda row: _rare(row.clipped), "n"),
        Column("Alone", "Accuracy with only this layer quantized", lambda row: _share(row.only), "n"),
        Column("Without", "Accuracy with all layers but this one quantized", lambda row: _share(row.without), "n"),
        Column("µs", "Time in the engine, in microseconds", _time, "n"),
        Column("Differs", "Share of its integers that the engine computes otherwise", lambda row: _rare(row.differ), "n"),
    ]


def _layer(*sides: tuple[str, Row]) -> Cell:
    """The cell of a layer with the reasons of each side, under the side's name."""
    row = sides[-1][1]
    reasons = [
        f"{whose}{'' if side.precision == 'fused' else 'float: '}{side.reason}" for whose, side in sides if side.reason
    ]
    return LayerCell(row.name, row.fused, reasons), row.name


def _bits(row: Row) -> Cell:
    return row.bits, row.bits


def _precision(row: Row) -> Cell:
    precision = EXECUTED.get(row.executed, row.executed) or row.precision
    return Styled(precision, _kind(row)), precision


def _threshold(role: str) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        thresholds = [value for name, values in row.thresholds.items() if name.startswith(role) for value in values]
        largest = max(thresholds, default=None)
        return number(largest), largest

    return cell


def _spread(row: Row) -> Cell:
    return EMPTY if row.spread is None else (sparkline(row.spread), row.spread.clipped)


def _error_column(rows: list[Row], cell: Callable[[Any], Cell], side: str = "") -> Column:
    if any(row.error_of_input for row in rows):
        title, parts = f"Error, input only{side}", "of the input alone: of weights, a frozen program has only the integers"
    else:
        title, parts = f"Error{side}", "input and weight together: the smaller, the worse"
    return Column(title, f"Signal to rounding noise in dB, {parts}", cell, "n", "error")


def _error(row: Row) -> Cell:
    return EMPTY if row.sqnr_db is None else (Styled(decibels(row.sqnr_db), error_style(row.sqnr_db)), row.sqnr_db)


def _share(value: float | None) -> Cell:
    return ("0", 0) if value == 0 else (percent(value), value)


def _rare(value: float | None) -> Cell:
    if value is None:
        return EMPTY
    return ("0" if value == 0 else "<\u202f0.001\u202f%" if value < 1e-5 else percent(value, 3)), value


def _time(row: Row) -> Cell:
    return EMPTY if row.microseconds is None else (f"{row.microseconds:,.1f}", row.microseconds)


# two runs


def _paired(first: list[Row], second: list[Row], names: tuple[str, str]) -> list[Column]:
    def of(side: int, cell: Callable[[Row], Cell]) -> Callable[[Pair], Cell]:
        return lambda pair: EMPTY if (row := pair[side]) is None else cell(row)

    def both(title: str, help_: str, cell: Callable[[Row], Cell], style: str = "", shown_as: str = "text") -> list[Column]:
        return [
            Column(f"{title} {letter}", f"{help_}, in {names[side]}", of(side, cell), style, shown_as)
            for side, letter in enumerate("AB")
        ]

    return [
        Column("Layer", LAYER, _layer_of_both, "name", "layer"),
        Column("Type", TYPE, lambda pair: ((pair[1] or pair[0]).type,) * 2),
        *both("Runs in", "What the engine computed it in, or what the program says", _precision, shown_as="badge"),
        *both("Bits", BITS, _bits),
        *both("Input", "Threshold of the input", _threshold("input"), "n", "aligned"),
        _error_column(first, of(0, _error), " A"),
        _error_column(second, of(1, _error), " B"),
        Column("Δ dB", DELTA_DB, _change_of_error, "n", "change"),
        *both("µs", "Time in the engine", _time, "n"),
        Column("Δ time", "Change of the time in the engine", _change_of_time, "n", "change"),
    ]


def _layer_of_both(pair: Pair) -> Cell:
    sides = [(whose, row) for whose, row in zip(("A ", "B "), pair, strict=True) if row is not None]
    if len({(row.precision, row.reason) for _, row in sides}) == 1:
        sides = [("", sides[-1][1])]
    return _layer(*sides)


def _change_of_error(pair: Pair) -> Cell:
    """The difference of two errors of the same parts: an int8 program's weights are rounded before it is analysed."""
    first, second = pair
    if first is None or second is None or first.sqnr_db is None or second.sqnr_db is None:
        return EMPTY
    if (first.weight_sqnr_db is None) != (second.weight_sqnr_db is None):
        return EMPTY
    difference = second.sqnr_db - first.sqnr_db
    return change(signed(difference, 1)), difference


def _change_of_time(pair: Pair) -> Cell:
    first, second = (side.microseconds if side else None for side in pair)
    if not first or second is None:
        return EMPTY
    ratio = second / first - 1
    style = "worse" if ratio > 0.005 else "better" if ratio < -0.005 else "same"
    return Styled(f"{points(ratio)[: -3 if abs(ratio) >= 0.1 else -1]}\u202f%", style), ratio
