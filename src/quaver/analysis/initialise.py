"""Start a program's quantizers from ranges that were measured before."""

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor

from quaver.analysis.findings import TensorStatistics, WeightStatistics
from quaver.checking import check, one_of
from quaver.config.recipe import STATISTICS
from quaver.errors import QuaverWarning, StageError
from quaver.program import Program, Stage
from quaver.quantizers import AbsMax, MovingAverageAbsMax, Quantizer, RangeAbsMax


def start_ranges(
    program: Program, tensors: Iterable[TensorStatistics], weights: Iterable[WeightStatistics], by: str = "moving_max"
) -> list[str]:
    """Set the range of every quantizer that was analysed, by the name of its tensor; gives these names.

    A weight's range comes from the weight; only a clip in front of it is started, at its largest value.
    """
    check("initialise", {"by": by}, {"by": one_of(*STATISTICS)})
    if not isinstance(program, Program) or program.stage is not Stage.PREPARED:
        raise StageError("initialise: takes a prepared program: what quaver.quant_aware gives.")
    tensors = list(tensors)
    quantizers, largest = dict(program.quantizers()), thresholds_of(tensors, by)
    started = []
    for tensor in tensors:
        quantizer = quantizers.get(tensor.quantizer)
        if quantizer is None or tensor.slot >= quantizer.tensors:
            continue
        clips = start_clip(quantizer, largest[tensor.quantizer])
        if start(quantizer, tensor.slot, tensor.figure(by)) or clips:
            started.append(tensor.name)
    for weight in weights:
        if weight.name in quantizers and start_clip(quantizers[weight.name], weight.largest):
            started.append(weight.name)
    if not started:
        raise StageError(
            "initialise: no tensor of the analysis is one of this program's. Analyse the model that it was made from."
        )
    left = program.unseen()
    if left:
        warnings.warn(
            f"initialise: {len(left)} quantizers, {left[0]!r} first, are not in the analysis and start without a range.",
            QuaverWarning,
            stacklevel=3,
        )
    return started


def thresholds_of(tensors: Iterable[TensorStatistics], by: str) -> dict[str, float]:
    """For each quantizer the largest of its tensors' figures."""
    thresholds: dict[str, float] = {}
    for tensor in tensors:
        thresholds[tensor.quantizer] = max(thresholds.get(tensor.quantizer, 0.0), tensor.figure(by))
    return thresholds


@torch.no_grad()
def start(quantizer: Quantizer, slot: int, threshold: float) -> bool:
    """Give a quantizer a range for one of its tensors; False for a user's own, which keeps its range to itself."""
    if isinstance(quantizer, MovingAverageAbsMax):
        # as after many batches: the next one moves it no more than any other would
        state = min(1 / (1 - quantizer.moving_rate), torch.finfo(torch.float32).max / max(threshold, 1.0))  # sum fits
        quantizer.state[slot], quantizer.accum[slot] = state, state * threshold
        return True
    if isinstance(quantizer, AbsMax):
        quantizer.last[slot] = threshold
        return True
    if isinstance(quantizer, RangeAbsMax):
        quantizer.window[slot] = 0.0
        quantizer.window[slot, 0], quantizer.steps[slot] = threshold, 1
        return True
    step, known = getattr(quantizer, "step", None), getattr(quantizer, "known", None)
    if isinstance(step, Tensor) and isinstance(known, Tensor) and step.dim() == 0:  # a learned step
        others = step.abs() if bool(known.any()) and not known[slot] else torch.zeros_like(step)
        step.copy_(torch.maximum(others, torch.full_like(step, threshold / quantizer.grid.high)))
        known[slot] = True
        return True
    return False


@torch.no_grad()
def start_clip(quantizer: Quantizer, threshold: float) -> bool:
    """Start the learned clip in front of a quantizer (PACT), if there is one; at a number above 0, as a clip must."""
    clip = getattr(quantizer.preprocess, "pact_threshold", None)
    if not isinstance(clip, Tensor) or threshold <= 0:
        return False
    clip.fill_(threshold)
    return True
