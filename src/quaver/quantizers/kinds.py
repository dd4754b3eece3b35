"""Quantizers by the names of their range rules, as programs store them."""

from typing import Any

from quaver.quantizers import RANGE_RULES
from quaver.quantizers.observer import Observer
from quaver.quantizers.pact import PACT
from quaver.quantizers.quantizer import Quantizer

KINDS: dict[str, type[Quantizer]] = {rule.quantizer.kind: rule.quantizer for rule in RANGE_RULES.values()}
KINDS[Observer.kind] = Observer


def build(kind: str, *, preprocess: str | None = None, **options: Any) -> Quantizer:
    """A quantizer by the name of its range rule, behind PACT if ``preprocess`` says so.

    >>> build("range_abs_max", bits=4, window_size=100)
    RangeAbsMax(bits=4, signed=True, narrow=True, pass_through=False, tensors=1, window_size=100)
    """
    quantizer = KINDS[kind](**options)
    if preprocess is not None:
        quantizer.preprocess = {"PACT": PACT}[preprocess]()
        quantizer.made_of = (None, preprocess)
    return quantizer
