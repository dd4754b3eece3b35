"""`Job`: what is to be trained, on what, and how."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from quaver.config.recipe import Phase
from quaver.program import Program
from quaver.training.checkpoint import Checkpoints
from quaver.training.listener import Listener
from quaver.training.ranks import Ranks
from quaver.training.task import Batches, Task


@dataclass(frozen=True, kw_only=True)
class Job:
    """A phase of training, complete.

    ``teacher`` is the float model to learn from; it is put into evaluation, and never changes. ``steps_per_epoch`` is how
    many steps an epoch has as the learning rate counts them, 0 for those that there are. Once figures of merit are
    ``enough``, no further epoch begins. ``header`` goes into every checkpoint as it is; ``resume`` says how to go on.
    """

    name: str
    program: Program
    task: Task
    phase: Phase
    batches: Batches
    test: Batches | None = None
    teacher: nn.Module | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    ranks: Ranks = field(default_factory=Ranks)
    seed: int = 0
    steps_per_epoch: int = 0
    enough: Callable[[dict[str, float]], bool] = lambda figures: False
    log_period: int = 10
    checkpoint_period: int = 500
    checkpoints: Checkpoints | None = None
    header: dict[str, Any] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    resume: str = ""
