"""A program as a table that a person can read."""

from typing import TYPE_CHECKING

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
    quantized = sum(record.quantized for record in records)
    view = ", evaluation view" if program.for_test else ""
    return "\n".join([f"Program ({program.stage.value}{view}): {quantized} of {len(records)} ops quantized", *lines])


def _number(values: list[float]) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{min(values):.3g}…{max(values):.3g}"
