"""What a program says about its ops: plain records, one per op."""

from dataclasses import dataclass, field, replace
from typing import Any

from quaver.program.reason import Reason
from quaver.records import Figure, decoded


@dataclass(frozen=True)
class OpRecord:
    """One op of a program: what it is, whether it computes on integers, and if not, why; ``reason`` says so in words.

    ``thresholds`` maps what was quantized (``input``, ``weight``, ``output`` …) to its absolute maximum: one number, one
    per channel, or none as long as no data was seen.
    """

    name: str
    type: str
    scope: str
    source: str
    quantized: bool
    why: Reason | None = None
    thresholds: dict[str, list[float]] = field(default_factory=dict)
    reason: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", "" if self.why is None else self.why.words())


def why_in(record: dict[str, Any]) -> Reason | None:
    """Why an op is float, by its record as JSON; an older one has the sentence alone."""
    return decoded(Reason | None, record.get("why", record["reason"] or None))  # type: ignore[no-any-return]


def read_record(value: Any) -> OpRecord:
    """A record from JSON, checked; a threshold may be NaN, of a program that saw it."""
    record: OpRecord = decoded(OpRecord, value | {"why": None, "thresholds": {}})
    return replace(record, why=why_in(value), thresholds=decoded(dict[str, list[Figure]], value["thresholds"]))
