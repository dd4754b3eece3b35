"""Quantizers: what makes a tensor feel integer rounding. One range rule per file, one arithmetic underneath."""

from typing import Any

from quaver.quantizers.abs_max import AbsMax
from quaver.quantizers.channel_wise_abs_max import ChannelWiseAbsMax
from quaver.quantizers.custom import CustomQuantizer
from quaver.quantizers.learned_step import LearnedStep
from quaver.quantizers.moving_average_abs_max import MovingAverageAbsMax
from quaver.quantizers.observer import Observer
from quaver.quantizers.pact import PACT
from quaver.quantizers.quantizer import Quantizer
from quaver.quantizers.range_abs_max import RangeAbsMax

KINDS: dict[str, type[Quantizer]] = {
    rule.kind: rule for rule in (AbsMax, ChannelWiseAbsMax, RangeAbsMax, MovingAverageAbsMax, LearnedStep, Observer)
}


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


__all__ = [
    "KINDS",
    "PACT",
    "AbsMax",
    "ChannelWiseAbsMax",
    "CustomQuantizer",
    "LearnedStep",
    "MovingAverageAbsMax",
    "Observer",
    "Quantizer",
    "RangeAbsMax",
    "build",
]
