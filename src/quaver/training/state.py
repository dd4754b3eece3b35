"""All that a run is at one moment: what a checkpoint holds, and what going on from it puts back."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from quaver.config.recipe import Phase
from quaver.errors import StorageError
from quaver.program import Program
from quaver.training.average import Average
from quaver.training.checkpoint import Checkpoint
from quaver.training.listener import Position
from quaver.training.watchdog import Watchdog

Tensors = dict[str, Tensor]


@dataclass
class State:
    """Weights, statistics, ranges, optimizers, averaged weights; the position, and what has happened so far.

    ``lr_factor`` is what rollbacks made of the learning rate, ``metrics`` the figures of the last evaluation. Learning rates
    and switches follow from the position, so they are not here.
    """

    program: Program
    optimizers: list[Optimizer]
    watchdog: Watchdog
    average: Average | None = None
    at: Position = field(default_factory=Position)
    lr_factor: float = 1.0
    rollbacks: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)

    def taken(self) -> tuple[Tensors, dict[str, Any]]:
        """Its tensors by name, and the rest as plain values."""
        tensors = {f"model.{name}": tensor for name, tensor in self.program.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.values.items()}
        plain = []
        for index, optimizer in enumerate(self.optimizers):
            found, rest = optimizer_state(optimizer, f"optimizer.{index}.")
            tensors |= found
            plain.append(rest)
        return tensors, {
            "at": asdict(self.at),
            "lr_factor": self.lr_factor,
            "rollbacks": self.rollbacks,
            "metrics": self.metrics,
            "optimizers": plain,
            "watchdog": self.watchdog.state(),
        }

    @torch.no_grad()
    def put_back(self, checkpoint: Checkpoint) -> None:
        """Be as it was when the checkpoint was taken."""
        tensors, record = checkpoint.tensors, checkpoint.record
        try:
            self.program.load_state_dict(under("model.", tensors))
            for index, optimizer in enumerate(self.optimizers):
                restore_optimizer(optimizer, under(f"optimizer.{index}.", tensors), record["optimizers"][index])
            if self.average is not None:
                for name, value in self.average.values.items():
                    value.copy_(tensors[f"average.{name}"])
        except (RuntimeError, LookupError, ValueError) as error:
            raise StorageError(
                f"checkpoint {checkpoint.name}: it is of another model, or of other options: {error}. Go on with the "
                "options that the run was started with."
            ) from error
        self.watchdog.restore(record["watchdog"])
        self.at = Position(**record["at"])
        self.lr_factor, self.rollbacks, self.metrics = record["lr_factor"], record["rollbacks"], record["metrics"]


def optimizers_for(program: Program, phase: Phase) -> list[Optimizer]:
    """The phase's for the weights; what custom functions brought along goes with them, or to an optimizer of its own."""
    options: dict[str, Any] = {"lr": phase.lr, "weight_decay": phase.l2_decay}
    own: Optimizer
    if phase.optimizer == "adamw":
        own = torch.optim.AdamW(program.parameter_groups(), betas=(phase.momentum_rate, 0.999), **options)
    else:
        own = torch.optim.SGD(program.parameter_groups(), momentum=phase.momentum_rate, nesterov=phase.nesterov, **options)
    theirs = program.quantizer_optimizer
    return [own] if theirs is None else [own, theirs]


def optimizer_state(optimizer: Optimizer, prefix: str) -> tuple[Tensors, dict[str, Any]]:
    """What `restore_optimizer` needs: tensors under names that begin with ``prefix``, and everything else."""
    whole = optimizer.state_dict()
    tensors, plain = dict[str, Tensor](), dict[str, dict[str, Any]]()
    for index, values in whole["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{prefix}{index}.{key}"] = value
            else:
                plain.setdefault(str(index), {})[key] = value
    return tensors, {"state": plain, "groups": whole["param_groups"]}


def restore_optimizer(optimizer: Optimizer, tensors: Tensors, plain: dict[str, Any]) -> None:
    """Put an optimizer where it was; the parameters must come in the same order."""
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in plain["state"].items()}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": plain["groups"]})


def under(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names begin with ``prefix``, by the rest of the name."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
