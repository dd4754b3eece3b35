"""Bits for single layers: ``{"stem": 8, "head": (8, 4)}`` is 8 bits for what is in ``stem``, and W8A4 for the head."""

from collections.abc import Iterable, Mapping
from typing import Any

from quaver.checking import Rule
from quaver.config.scopes import contains
from quaver.grid import BITS

LayerBits = Mapping[str, Any] | Iterable[tuple[str, Any]]
Pairs = tuple[tuple[str, tuple[int, int]], ...]


def layer_bits() -> Rule:
    """A dict from a part of a scope to bits, or to a pair: the weight's and the inputs'."""
    description = (
        f"a dict from a part of an op's scope to bits ({BITS[0]} to {BITS[-1]}), or to (weight bits, activation bits)"
    )
    return Rule(description, _allows)


def as_pairs(given: LayerBits) -> Pairs:
    """The same in a form that can be compared, hashed and kept: scope part, (weight bits, activation bits)."""
    items = given.items() if isinstance(given, Mapping) else given
    return tuple((pattern, (bits, bits) if isinstance(bits, int) else tuple(bits)) for pattern, bits in items)


def bits_for(scope: str, given: LayerBits, otherwise: tuple[int, int]) -> tuple[int, int]:
    """Weight and activation bits of an op: of the last pattern that its scope contains.

    >>> bits_for("stem.0", (("stem", (8, 4)),), (4, 4))
    (8, 4)
    """
    return next((bits for pattern, bits in reversed(as_pairs(given)) if contains(scope, pattern)), otherwise)


def _allows(value: Any) -> bool:
    try:
        pairs = as_pairs(value)
    except (TypeError, ValueError):
        return False
    return all(
        isinstance(pattern, str) and pattern and len(bits) == 2 and all(type(size) is int and size in BITS for size in bits)
        for pattern, bits in pairs
    )
