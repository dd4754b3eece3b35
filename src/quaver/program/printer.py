"""A program as a table that a person can read."""

from typing import TYPE_CHECKING

from quaver.operators import WEIGHTED
from quaver.program.op_record import OpRecord
from quaver.program.reason import ONLY_IN_TRAINING, READ_BY_NOBODY, ComputedWith, Folded

if TYPE_CHECKING:
    from quaver.program.program import Program


def table(program: "Program") -> str:
    """One line per op: name, type, whether it is quantized, thresholds, and why it is float."""
    records = program.ops()
    rows = [("op", "type", "precision", "thresholds", "why")]
    for record in records:
        thresholds = ", ".join(f"{role} {_number(values)}" for role, values in record.thresholds.items())
        rows.append((record.name, record.type, "int8" if record.quantized else "float", thresholds, record.reason))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = [
        "  ".join([*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    ]
    view = ", evaluation view" if program.for_test else ""
    return "\n".join([f"Program ({program.stage.value}{view}): {_headline(records)}", *lines])


def _headline(records: list[OpRecord]) -> str:
    """First what people ask first, whether the layers with most of the work run in int8; then what became of the rest."""
    deployed = [record for record in records if record.why not in (ONLY_IN_TRAINING, READ_BY_NOBODY)]
    layers = [record for record in deployed if record.type in WEIGHTED]
    others = [record for record in deployed if record.type not in WEIGHTED]
    int8 = sum(record.quantized for record in others)
    folded = sum(isinstance(record.why, Folded | ComputedWith) for record in others)
    parts = {"other ops in int8": int8, "folded": folded, "in float": len(others) - int8 - folded}
    parts["read by nobody"] = sum(record.why == READ_BY_NOBODY for record in records)
    rest = [f"{count} {what}" for what, count in parts.items() if count]
    return ", ".join(
        [f"{sum(record.quantized for record in layers)} of {len(layers)} convolutions and linear layers in int8", *rest]
    )


def _number(values: list[float]) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{min(values):.3g}…{max(values):.3g}"
