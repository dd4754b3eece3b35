"""What a program says about its ops: plain records, one per op."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Op:
    """An op as the model's author knows it; a graph's node carries one in ``node.meta["op"]``."""

    name: str
    type: str
    scope: str
    source: str


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
