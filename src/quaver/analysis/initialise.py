"""Start a program's quantizers from ranges that were measured before."""

import warnings
from collections.abc import Iterable

import torch

from quaver.analysis.records import TensorStatistics
from quaver.config.check import check, one_of
from quaver.errors import QuaverWarning, StageError
from quaver.program import Program, Stage
from quaver.quantizers import MovingAverageAbsMax, Quantizer, RangeAbsMax

STATISTICS = ("moving_max", "largest", "best_threshold")


def start_ranges(program: Program, tensors: Iterable[TensorStatistics], by: str = "moving_max") -> list[str]:
    """Set the range of every quantizer that was analysed, by the name of its tensor; gives these names."""
    check("initialise", {"by": by}, {"by": one_of(*STATISTICS)})
    if not isinstance(program, Program) or program.stage is not Stage.PREPARED:
        raise StageError("initialise: takes a prepared program: what quaver.quant_aware gives.")
    known, started = dict(program.quantizers()), []
    for tensor in tensors:
        quantizer = known.get(tensor.quantizer)
        if quantizer is not None and tensor.slot < quantizer.tensors and start(quantizer, tensor.slot, getattr(tensor, by)):
            started.append(tensor.name)
    left = program.unseen()
    if not started:
        raise StageError(
            "initialise: no tensor of the analysis is one of this program's. Analyse the model that it was made from."
        )
    if left:
        warnings.warn(
            f"initialise: {len(left)} quantizers, {left[0]!r} first, are not in the analysis and start without a range.",
            QuaverWarning,
            stacklevel=3,
        )
    return started


@torch.no_grad()
def start(quantizer: Quantizer, slot: int, threshold: float) -> bool:
    """Give a quantizer a range for one of its tensors; False for a rule that keeps none."""
    if isinstance(quantizer, MovingAverageAbsMax):
        # as if it had been observed for long: the next batch moves it no more than any other batch does
        state = 1 / (1 - quantizer.moving_rate)
        quantizer.state[slot], quantizer.accum[slot] = state, state * threshold
        return True
    if isinstance(quantizer, RangeAbsMax):
        quantizer.window[slot] = 0.0
        quantizer.window[slot, 0], quantizer.steps[slot] = threshold, 1
        return True
    return False
