"""An exponential moving average (EMA) of the weights, often a better model than the weights themselves."""

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from quaver.program import Program


class EMA:
    """``average ← decay·average + (1 − decay)·weights`` after each step, of parameters and batch-norm statistics.

    The decay starts low, ``(1 + step)/(10 + step)``, so that the first weights are forgotten soon. Ranges of quantizers are
    averages already, of the same activations, and are left out.
    """

    def __init__(self, program: Program, decay: float) -> None:
        self.decay = decay
        root = program.placements.root
        buffers = {name: tensor for name, tensor in program.named_buffers() if tensor.is_floating_point()}
        self.weights: dict[str, Tensor] = {
            name: tensor.detach()
            for name, tensor in (dict(program.named_parameters()) | buffers).items()
            if not (root and name.startswith(f"{root}."))
        }
        self.values = {name: tensor.clone() for name, tensor in self.weights.items()}

    def update(self, step: int) -> None:
        """Take in the weights after ``step``."""
        average = get_ema_multi_avg_fn(min(self.decay, (1 + step) / (10 + step)))  # type: ignore[no-untyped-call]
        average(list(self.values.values()), list(self.weights.values()), step)

    @torch.no_grad()
    def swap(self) -> None:
        """Swap the average and the weights; a second call swaps them back."""
        for name, weight in self.weights.items():
            kept = weight.clone()
            weight.copy_(self.values[name])
            self.values[name].copy_(kept)
