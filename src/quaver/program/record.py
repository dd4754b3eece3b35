"""What a program says about its ops: plain records, one per op."""

from dataclasses import dataclass, field, replace
from typing import Any

from quaver.records import Figure, decoded


@dataclass(frozen=True)
class OpRecord:
    """One op of a program: what it is, whether it computes on integers, and if not, why.

    ``thresholds`` maps what was quantized (``input``, ``weight``, ``output`` …) to its absolute maximum: one number, one
    per channel, or none as long as no data was seen.
    """

    name: str
    type: str
    scope: str
    source: str
    quantized: bool
    reason: str
    thresholds: dict[str, list[float]] = field(default_factory=dict)


def read_record(value: Any) -> OpRecord:
    """A record from JSON, checked; a threshold may be NaN, of a program that saw it."""
    record: OpRecord = decoded(OpRecord, value | {"thresholds": {}})
    return replace(record, thresholds=decoded(dict[str, list[Figure]], value["thresholds"]))
