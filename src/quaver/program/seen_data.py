"""Which quantizers of a program have seen data, and what is said of those that have not, or that saw NaN."""

import warnings
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from quaver.errors import QuaverWarning
from quaver.quantizers import Observer, Quantizer

if TYPE_CHECKING:
    from quaver.program.program import Program


def seen_data(quantizers: Mapping[str, Quantizer], weights: Container[str]) -> dict[str, bool]:
    """Whether the quantized tensors whose range comes from data, which those of weights do not, have seen any, by name."""
    rounding = {name: q for name, q in quantizers.items() if not isinstance(q, Observer)}
    states = {name: q.seen for name, q in rounding.items() if name not in weights}
    seen_tensors = {name: seen for name, seen in states.items() if isinstance(seen, Tensor)}
    flags = torch.stack(list(seen_tensors.values())).tolist() if seen_tensors else []
    return dict(zip(seen_tensors, flags, strict=True))


def warn_of_ranges(program: "Program", *, stacklevel: int) -> None:
    """Name the tensors that saw NaN or Inf, or no data where others did; asked once per switch: training pays nothing.

    Where none did, training has not begun: a copy for averages was made, or a trainer tries its loop. `convert` refuses.
    """
    quantizers = dict(program.quantizers())
    seen = seen_data(quantizers, program.placements.weights)
    unseen = [name for name in seen if not seen[name] and quantizers[name].quantizing]
    if unseen and any(seen.values()):
        warnings.warn(
            f"{len(unseen)} quantizers, {unseen[0]!r} first, saw no data yet and let values pass unrounded: what is "
            "evaluated now is partly the float model. Run training batches through program.train() first.",
            QuaverWarning,
            stacklevel=stacklevel + 1,
        )
    counts = {name: quantizer.nonfinite for name, quantizer in quantizers.items()}
    totals = torch.stack(list(counts.values())).tolist() if counts else []
    bad = {name: total for name, total in zip(counts, totals, strict=True) if total}
    if bad:
        listed = ", ".join(f"{name!r} ({total} times)" for name, total in bad.items())
        warnings.warn(
            f"NaN or Inf was seen in {listed}. These batches were left out of the thresholds, which stay as they "
            "were. Try a lower learning rate, gradient clipping, or look at the batch.",
            QuaverWarning,
            stacklevel=stacklevel + 1,
        )
        for count in counts.values():
            count.zero_()
