"""A plain training loop and a plain evaluation loop, for anything that maps images to logits."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quaver.program import Program

Batches = Iterable[tuple[Tensor, Tensor]]
StepDone = Callable[[float, int], None]


def fit(
    model: nn.Module,
    batches: Batches,
    *,
    epochs: int,
    lr: float,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
    on_step: StepDone = lambda loss, images: None,
) -> None:
    """SGD with a learning rate that falls to zero along a cosine. ``on_step`` is told loss and batch size.

    Custom quantizers that have an optimizer of their own are stepped by it.
    """
    parameters = model.parameter_groups() if isinstance(model, Program) else model.parameters()
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=True)
    quantizers = model.quantizer_optimizer if isinstance(model, Program) else None
    steps = epochs * sum(1 for _ in batches)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(epochs):
        for images, labels in batches:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            if quantizers is not None:
                quantizers.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if quantizers is not None:
                quantizers.step()
            schedule.step()
            on_step(float(loss.detach()), len(labels))


@torch.no_grad()
def evaluate(model: nn.Module, batches: Batches) -> float:
    """Top-1 accuracy, every image counted once; the model is left in the mode it was in."""
    was_training = model.training
    model.eval()
    right = total = 0
    for images, labels in batches:
        right += int((model(images).argmax(1) == labels).sum())
        total += len(labels)
    if was_training:
        model.train()
    return right / total
