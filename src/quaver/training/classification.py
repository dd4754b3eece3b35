"""Classification as a task: cross entropy, top-1 and top-5."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quaver.training.label_ranks import label_ranks
from quaver.training.ranks import Ranks
from quaver.training.task import Batches

AUXILIARY = 0.3  # weight of a second classifier half-way, as its authors had it (Szegedy et al., 2015)


@dataclass(frozen=True)
class Classification:
    """A `Task`. A model may give several outputs in training: the first is the one that counts."""

    label_smoothing: float = 0.0
    ranks: Ranks = field(default_factory=Ranks)
    metric: ClassVar[str] = "top1"
    """The figure of `evaluate` that says which of two models is better; higher is."""

    def loss(self, output: Any, target: Tensor) -> Tensor:
        """Cross entropy with smoothed labels; further outputs of the model count a third as much."""
        first, *others = _outputs(output)
        loss = F.cross_entropy(first, target, label_smoothing=self.label_smoothing)
        for other in others:
            loss = loss + AUXILIARY * F.cross_entropy(other, target, label_smoothing=self.label_smoothing)
        return loss

    def distillation(self, output: Any, teacher: Any, temperature: float) -> Tensor:
        """The divergence from the teacher's softened probabilities (Hinton et al., 2015)."""
        student, wise = _outputs(output)[0].float(), _outputs(teacher)[0].float()
        soft = F.log_softmax(wise / temperature, 1)
        own = F.log_softmax(student / temperature, 1)
        return F.kl_div(own, soft, reduction="batchmean", log_target=True) * temperature**2

    def figures(self, output: Any, target: Tensor) -> dict[str, Tensor]:
        """The part of the batch whose label is the first guess, and, of more than five classes, among the first five."""
        logits = _outputs(output)[0]
        top1, top5 = _hits(logits, target) / len(target)
        return {"acc_top1": top1, "acc_top5": top5} if _ranks_five(logits) else {"acc_top1": top1}

    @torch.no_grad()
    def evaluate(self, model: Callable[..., Any], loader: Batches) -> dict[str, float]:
        """Top-1, top-5 (of more than five classes) and loss over all images; a module is left in the mode it was in.

        ``model`` is a module, a program of any stage, or an artefact on its engine.
        """
        was_training = isinstance(model, nn.Module) and model.training
        run, device = _callable(model)
        sums, ranks_five = torch.zeros(4, dtype=torch.float64, device=device), True
        for images, labels in loader.epoch(0):
            output, labels = _outputs(run(images.to(device)))[0], labels.to(device)
            loss = F.cross_entropy(output.float(), labels, reduction="sum")
            sums += torch.stack([*_hits(output, labels), loss, torch.full_like(loss, len(labels))])
            ranks_five = _ranks_five(output)
        if was_training:
            model.train()  # type: ignore[attr-defined]
        top1, top5, loss, images = self.ranks.total(sums).tolist()
        five = {"top5": top5 / images} if ranks_five else {}
        return {"top1": top1 / images, **five, "loss": loss / images, "images": int(images)}


def _callable(model: Callable[..., Any]) -> tuple[Callable[[Tensor], Any], torch.device]:
    """The model in evaluation as a function of images, and where it wants them."""
    if isinstance(model, nn.Module):
        model.eval()
        return model, next((x.device for x in (*model.parameters(), *model.buffers())), torch.device("cpu"))

    def on_engine(images: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(_outputs(model(images.numpy()))[0]))

    return on_engine, torch.device("cpu")


def _outputs(output: Any) -> list[Any]:
    return list(output) if isinstance(output, list | tuple) else [output]


def _ranks_five(logits: Tensor) -> bool:
    """Whether five guesses can be wrong."""
    return logits.shape[1] > 5


def _hits(logits: Tensor, labels: Tensor) -> Tensor:
    """How many labels have the largest logit, and one of the five largest."""
    ranks = label_ranks(logits.detach(), labels)
    return torch.stack([(ranks < k).sum() for k in (1, 5)]).float()
