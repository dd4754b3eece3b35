"""What `quaver.calibrate` does, and what can be left out."""

from dataclasses import dataclass

from quaver.checking import boolean, one_of, or_none, whole
from quaver.config.options import Checked, lists_options, option

RANGES = ("output", "tensor", "largest")
FEW_BITS = 8
"""Weights of fewer bits are rounded adaptively by default."""


@lists_options
@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(Checked):
    """The means of calibration; each can be left out."""

    images: int = option(256, whole(1), "Images that are looked at: the first ones.")
    ranges: str = option(
        "tensor",
        one_of(*RANGES),
        "Whose error ranges of activations keep small: the tensor's, its readers' (output), nobody's (largest).",
    )
    asymmetric: bool | None = option(
        None,
        or_none(boolean()),
        "Give tensors that hardly go below zero (SiLU, GELU) a zero point of their own, where it wins; None: for engines "
        "that take it.",
    )
    equalize: bool = option(True, boolean(), "Make channels alike between two layers, where that promises less noise.")
    search_weights: bool = option(False, boolean(), "Search thresholds of weights by the output's error.")
    round_weights: bool | None = option(
        None, or_none(boolean()), "Round weights so that the output's error is least; None: those of fewer than 8 bits."
    )
    correct_bias: bool = option(True, boolean(), "Take off what rounding adds to the mean of a channel.")
    reestimate_bn: bool = option(True, boolean(), "Let batch-norm statistics follow what rounding does to them.")

    def rounds_weights(self, bits: int) -> bool:
        """Whether weights of so many bits are rounded adaptively."""
        return bits < FEW_BITS if self.round_weights is None else self.round_weights
