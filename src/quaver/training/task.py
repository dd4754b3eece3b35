"""What the trainer asks of a task and of its data: classification is one, detection another."""

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor


class Batches(Protocol):
    """What gives an epoch's batches of images and targets, from a batch on."""

    def __len__(self) -> int:
        """Batches per epoch."""
        ...

    def epoch(self, k: int, start: int = 0) -> Iterable[tuple[Tensor, Any]]:
        """Epoch ``k`` from batch ``start`` on."""
        ...


class Task(Protocol):
    """What a model is trained for.

    A task may also have ``figures(output, target)``, means over a batch by name for log lines, and
    ``distillation(output, teacher, temperature)``, how far an output is from the float model's.
    """

    def loss(self, output: Any, target: Any) -> Tensor:
        """What training makes smaller: a mean over the batch."""
        ...

    def evaluate(self, model: Any, loader: Any) -> dict[str, float]:
        """The figures of merit over a data set, every image counted once, over all processes.

        ``model`` is a module or an artefact on its engine, ``loader`` has `Batches`' ``epoch``.
        """
        ...
