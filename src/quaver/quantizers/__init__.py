"""Quantizers: what makes a tensor feel integer rounding. One range rule per file, one arithmetic underneath."""

from typing import Any, NamedTuple

from quaver.quantizers.abs_max import AbsMax
from quaver.quantizers.channel_wise_abs_max import ChannelWiseAbsMax
from quaver.quantizers.custom import CustomQuantizer
from quaver.quantizers.learned_step import LearnedStep
from quaver.quantizers.moving_average_abs_max import MovingAverageAbsMax
from quaver.quantizers.observer import Observer
from quaver.quantizers.pact import PACT
from quaver.quantizers.quantizer import Quantizer
from quaver.quantizers.range_abs_max import RangeAbsMax


class RangeRule(NamedTuple):
    """A range rule as configs know it: its class, what that is always given, and the config's options that it takes."""

    quantizer: type[Quantizer]
    fixed: dict[str, Any] = {}
    takes: tuple[str, ...] = ()
    for_activations: bool = True


RANGE_RULES = {
    "abs_max": RangeRule(AbsMax),
    "channel_wise_abs_max": RangeRule(ChannelWiseAbsMax, {"axis": 0}, for_activations=False),
    "range_abs_max": RangeRule(RangeAbsMax, takes=("window_size",)),
    "moving_average_abs_max": RangeRule(MovingAverageAbsMax, takes=("moving_rate",)),
    "learned_step": RangeRule(LearnedStep),
    "channel_wise_learned_step": RangeRule(LearnedStep, {"axis": 0}, for_activations=False),
}
"""Every rule that a config can name; to add one is to add its file and its line here."""

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


__all__ = [
    "KINDS",
    "PACT",
    "RANGE_RULES",
    "AbsMax",
    "ChannelWiseAbsMax",
    "CustomQuantizer",
    "LearnedStep",
    "MovingAverageAbsMax",
    "Observer",
    "Quantizer",
    "RangeAbsMax",
    "RangeRule",
    "build",
]
