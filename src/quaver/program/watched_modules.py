"""The modules of a program whose mode matters: those that its graphs ask, and those whose settings are in them for good."""

from collections.abc import Iterable
from typing import Any

from torch import fx, nn

from quaver.errors import StageError
from quaver.program.live_modules import live_modules
from quaver.program.traced import Traced

Watched = list[tuple[str, Any, list[tuple[str, float]] | None]]
"""Path, module, and the settings that the graphs have of it; None of a batch norm or dropout, which they ask."""


def watched_modules(root: nn.Module, graphs: Iterable[fx.Graph], traced: Traced) -> Watched:
    """Those of a program, as they are now."""
    watched: dict[str, Any] = {path: (module, None) for _, path, module in live_modules(root, *graphs)}
    there = dict(root.named_modules()) if traced.settings else {}
    for path in traced.settings.keys() & there.keys():
        module = there[path]
        watched[path] = (module, [pair for pair in traced.settings[path].items() if hasattr(module, pair[0])])
    return [(path, *pair) for path, pair in watched.items()]


def refuse_unheeded(watched: Watched, training: bool) -> None:
    """Refuse modes and settings of modules that a graph cannot follow, of a program in this mode."""
    for path, module, settings in watched:
        if settings is None:
            if module.training and not training:
                raise _in_training(path)
        elif module.training != training:
            raise _in_another_mode(path, module)
        else:
            for name, value in settings:
                if getattr(module, name) != value:
                    raise _set_otherwise(path, name, value, getattr(module, name))


def _in_training(path: str) -> StageError:
    return StageError(
        f"{path!r} is in training mode, and the program evaluates: its evaluation graph has no dropout, and batch norms in "
        "it use their running statistics. Call program.eval(), or run the training graph: program.train(), then .eval() on "
        "the modules that are not to train, and program.apply(quaver.disable_observer)."
    )


def _in_another_mode(path: str, module: nn.Module) -> StageError:
    modes = ("training", "evaluation") if module.training else ("evaluation", "training")
    return StageError(
        f"{path!r} ({type(module).__name__}) is in {modes[0]} mode, and the program in {modes[1]}: what it does there is in "
        "the graph, which asks only batch norms and dropouts of torch.nn. Call program.train() or program.eval(), and then "
        ".eval() on batch norms and dropouts alone."
    )


def _set_otherwise(path: str, name: str, traced: float, now: Any) -> StageError:
    return StageError(
        f"'{path}.{name}' is {now!r}, and was {traced!r} when the model was captured: the graph has that, and asks only "
        "batch norms and dropouts of torch.nn. Set it before capture."
    )
