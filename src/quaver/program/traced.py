"""What of a model's modules is in a program's graphs for good, and what is said to who changes it there."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from quaver.errors import StageError


@dataclass(frozen=True)
class Traced:
    """Hooks that ran while the model was traced, by their numbers; the modules' classes; and settings.

    ``settings`` are the numbers that modules held which differ by mode: a stochastic depth, a block that calls
    ``F.dropout``. Of these each graph has what they do in its mode.
    """

    hooks: frozenset[int] = frozenset()
    classes: dict[str, type[nn.Module]] = field(default_factory=dict)
    settings: dict[str, dict[str, float]] = field(default_factory=dict)

    def refuse_others(self, root: nn.Module) -> None:
        """Refuse a module of another class in the place of one that the graph computes."""
        for path, module in root.named_modules():
            traced = self.classes.get(path, nn.Module)
            if not isinstance(module, _BatchNorm if issubclass(traced, _BatchNorm) else traced):
                raise StageError(
                    f"{path!r} is a {type(module).__name__} now, and was a {traced.__name__} when the model was captured: "
                    "the graph computes that one. Put it into the model, and capture that."
                )


def refuse_no_tensor(path: str) -> StageError:
    """What is said where a graph would read what is no parameter or buffer any more."""
    return StageError(
        f"{path!r} is no parameter or buffer of the program any more: it was pruned, say. Do that to the model, and capture "
        "it then."
    )


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
