"""The state of a run: what a checkpoint holds, and what resuming from it restores."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from quaver.config.recipe import AS_WEIGHTS, Phase, QuantPhase
from quaver.errors import StorageError
from quaver.program import Program
from quaver.records import Figure, decoded
from quaver.training.checkpoint import Checkpoint
from quaver.training.ema import EMA
from quaver.training.listener import Position
from quaver.training.watchdog import Watchdog, WatchdogState

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
    average: EMA | None = None
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
            state_tensors, rest = optimizer_state(optimizer, f"optimizer.{index}.")
            tensors |= state_tensors
            plain.append(rest)
        return tensors, {
            "at": asdict(self.at),
            "lr_factor": self.lr_factor,
            "rollbacks": self.rollbacks,
            "metrics": self.metrics,
            "optimizers": plain,
            "watchdog": asdict(self.watchdog.seen),
        }

    @torch.no_grad()
    def put_back(self, checkpoint: Checkpoint) -> None:
        """Restore the state at the time of the checkpoint."""
        tensors = checkpoint.tensors
        try:
            record: _Record = decoded(_Record, {name: checkpoint.record[name] for name in _Record.__annotations__})
            if min(asdict(record.at).values()) < 0:
                raise ValueError(f"its position is {record.at}")
            self.program.load_state_dict(under("model.", tensors))
            for index, optimizer in enumerate(self.optimizers):
                restore_optimizer(optimizer, under(f"optimizer.{index}.", tensors), record.optimizers[index])
            if self.average is not None:
                for name, value in self.average.values.items():
                    value.copy_(tensors[f"average.{name}"])
        except (RuntimeError, LookupError, ValueError, TypeError) as error:
            raise StorageError(
                f"checkpoint {checkpoint.name}: it is of another model, or of other options: {error}. Go on with the "
                "options that the run was started with."
            ) from error
        self.watchdog.restore(record.watchdog)
        self.at, self.lr_factor = record.at, record.lr_factor
        self.rollbacks, self.metrics = record.rollbacks, dict(record.metrics)


@dataclass(frozen=True)
class _Plain:
    """What an optimizer is besides its tensors."""

    state: dict[str, dict[str, Any]]
    groups: list[dict[str, Any]]


@dataclass(frozen=True)
class _Record:
    """A state's plain values, as a checkpoint holds them."""

    at: Position
    lr_factor: float
    rollbacks: list[str]
    metrics: dict[str, Figure]
    optimizers: list[_Plain]
    watchdog: WatchdogState


def optimizers_for(program: Program, phase: Phase) -> list[Optimizer]:
    """The phase's for the weights; what custom functions brought along goes with them, or to an optimizer of its own."""
    options: dict[str, Any] = {"lr": phase.lr, "weight_decay": phase.l2_decay}
    groups = program.parameter_groups(**_of_clips(phase))
    own: Optimizer
    if phase.optimizer == "adamw":
        own = torch.optim.AdamW(groups, betas=(phase.momentum_rate, 0.999), **options)
    else:
        own = torch.optim.SGD(groups, momentum=phase.momentum_rate, nesterov=phase.nesterov, **options)
    theirs = program.quantizer_optimizer
    return [own] if theirs is None else [own, theirs]


def first_rates(phase: Phase) -> tuple[float, float]:
    """Where the learning rate begins: of the weights, and of what quantizers learn."""
    return phase.lr, _of_clips(phase).get("lr", phase.lr)


def _of_clips(phase: Phase) -> dict[str, float]:
    """What the recipe says of PACT's clips alone."""
    if not isinstance(phase, QuantPhase):
        return {}
    own = {"lr": phase.pact_lr, "weight_decay": phase.pact_l2_decay}
    return {name: value for name, value in own.items() if value != AS_WEIGHTS}


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


def restore_optimizer(optimizer: Optimizer, tensors: Tensors, plain: _Plain) -> None:
    """Put an optimizer where it was; the parameters must come in the same order."""
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in plain.state.items()}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    _refuse_misfits([parameter for group in optimizer.param_groups for parameter in group["params"]], state)
    groups = zip(optimizer.state_dict()["param_groups"], plain.groups, strict=True)
    optimizer.load_state_dict({"state": state, "param_groups": [_group(own, saved) for own, saved in groups]})


def _refuse_misfits(parameters: list[Tensor], state: dict[int, dict[str, Any]]) -> None:
    """What is kept of a parameter has its shape, or is one number; of each the same is kept."""
    for index, values in state.items():
        if not 0 <= index < len(parameters):
            raise ValueError(f"the optimizer has no parameter {index}")
        for key, value in values.items():
            shape = value.shape if isinstance(value, Tensor) else ()
            odd = value.is_complex() if isinstance(value, Tensor) else not isinstance(value, int | float | None)
            if odd or shape not in ((), parameters[index].shape):
                raise ValueError(f"the optimizer's {key!r} of parameter {index} does not fit it")
    if len({frozenset(values) for values in state.values()}) > 1:
        raise ValueError("the optimizer keeps something of one parameter and not of another")


def _group(own: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """A group of parameters with the options that were saved, where they are of the kind that its own are."""
    for key, value in own.items():
        if key == "params" and saved[key] != value:
            raise ValueError("the optimizer's parameters are others")
        if _kind(saved.get(key, value)) != _kind(value):
            raise ValueError(f"the optimizer's {key}={saved[key]!r:.60}")
    return own | {key: value for key, value in saved.items() if key in own}


def _kind(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_kind(item) for item in value]
    return float if type(value) is int else type(value)


def under(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names begin with ``prefix``, by the rest of the name."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
