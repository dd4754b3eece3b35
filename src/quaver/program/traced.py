"""What of a model's modules is in a program's graphs for good, and what is said to who changes it there."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from quaver.errors import StageError


@dataclass(frozen=True)
class Traced:
    """Hooks that ran while the model was traced, by their numbers; modules that differ by mode, with the numbers they held.

    Of the latter each graph has what they do in its mode: a stochastic depth, a block that calls ``F.dropout``.
    """

    hooks: frozenset[int] = frozenset()
    settings: dict[str, dict[str, float]] = field(default_factory=dict)


def refuse_training(path: str) -> StageError:
    """What is said of a batch norm or dropout in training mode inside a program that evaluates."""
    return StageError(
        f"{path!r} is in training mode, and the program evaluates: its evaluation graph has no dropout, and batch norms in "
        "it use their running statistics. Call program.eval(), or run the training graph: program.train(), then .eval() on "
        "the modules that are not to train, and program.apply(quaver.disable_observer)."
    )


def refuse_mode(path: str, module: nn.Module) -> StageError:
    """What is said of a module in another mode than the program."""
    modes = ("training", "evaluation") if module.training else ("evaluation", "training")
    return StageError(
        f"{path!r} ({type(module).__name__}) is in {modes[0]} mode, and the program in {modes[1]}: what it does there is in "
        "the graph, which asks only batch norms and dropouts of torch.nn. Call program.train() or program.eval(), and then "
        ".eval() on batch norms and dropouts alone."
    )


def refuse_setting(path: str, name: str, traced: float, now: Any) -> StageError:
    """What is said of a number that the graph has from when the model was captured."""
    return StageError(
        f"'{path}.{name}' is {now!r}, and was {traced!r} when the model was captured: the graph has that, and asks only "
        "batch norms and dropouts of torch.nn. Set it before capture."
    )
