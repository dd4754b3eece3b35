"""Quantizers: what makes a tensor feel integer rounding. One range rule per file, one arithmetic underneath."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from quaver.on_demand import on_demand

if TYPE_CHECKING:
    from quaver.quantizers.abs_max import AbsMax
    from quaver.quantizers.channel_wise_abs_max import ChannelWiseAbsMax
    from quaver.quantizers.custom import CustomQuantizer
    from quaver.quantizers.learned_step import LearnedStep
    from quaver.quantizers.make import KINDS, build
    from quaver.quantizers.moving_average_abs_max import MovingAverageAbsMax
    from quaver.quantizers.observer import Observer
    from quaver.quantizers.pact import PACT
    from quaver.quantizers.quantizer import Quantizer
    from quaver.quantizers.range_abs_max import RangeAbsMax


class RangeRule(NamedTuple):
    """A range rule as configs know it: its file and class, what that is always given, and the config's options it takes."""

    place: str
    fixed: dict[str, Any] = {}
    takes: tuple[str, ...] = ()
    for_activations: bool = True

    @property
    def quantizer(self) -> "type[Quantizer]":
        """The class, imported: it needs torch, the names of the rules do not."""
        file, name = self.place.split(".")
        return getattr(import_module(f"{__name__}.{file}"), name)  # type: ignore[no-any-return]


RANGE_RULES = {
    "abs_max": RangeRule("abs_max.AbsMax"),
    "channel_wise_abs_max": RangeRule("channel_wise_abs_max.ChannelWiseAbsMax", {"axis": 0}, for_activations=False),
    "range_abs_max": RangeRule("range_abs_max.RangeAbsMax", takes=("window_size",)),
    "moving_average_abs_max": RangeRule("moving_average_abs_max.MovingAverageAbsMax", takes=("moving_rate",)),
    "learned_step": RangeRule("learned_step.LearnedStep"),
    "channel_wise_learned_step": RangeRule("learned_step.LearnedStep", {"axis": 0}, for_activations=False),
}
"""Every rule that a config can name; to add one is to add its file and its line here."""

on_demand(
    __name__,
    {
        "abs_max": "AbsMax",
        "channel_wise_abs_max": "ChannelWiseAbsMax",
        "custom": "CustomQuantizer",
        "learned_step": "LearnedStep",
        "make": "KINDS build",
        "moving_average_abs_max": "MovingAverageAbsMax",
        "observer": "Observer",
        "pact": "PACT",
        "quantizer": "Quantizer",
        "range_abs_max": "RangeAbsMax",
    },
)

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
