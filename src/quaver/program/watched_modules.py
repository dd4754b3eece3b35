"""The modules of a program whose mode matters: those that its graphs ask, and those whose settings are in them for good."""

from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, NamedTuple

from torch import fx, nn

from quaver.errors import StageError
from quaver.program.live_modules import live_modules
from quaver.program.traced import Traced

_PLAIN = (bool, int, float, str, NoneType, FunctionType, BuiltinFunctionType)


class Watched(NamedTuple):
    """Modules with their paths: those that graphs ask, those that differ by mode, and those with settings in the graphs.

    The program itself, which may have some, stands there as None: it holds this, and is not to hold itself.
    """

    asked: list[tuple[str, nn.Module]]
    modal: list[tuple[str, nn.Module]]
    set: list[tuple[str, nn.Module | None, dict[str, Any]]]


def watched_modules(root: nn.Module, graphs: Iterable[fx.Graph], traced: Traced, attributes: Mapping[str, Any]) -> Watched:
    """Those of a program, as they are now; ``attributes`` are those that it has from its model."""
    asked = {path: module for _, path, module in live_modules(root, *graphs)}
    there = dict(root.named_modules()) if traced.modal or traced.settings else {}
    settings = {path: own for path, own in traced.settings.items() if path in there}
    if "" in settings:
        settings[""] = {name: value for name, value in settings[""].items() if name in attributes}
    return Watched(
        list(asked.items()),
        [(path, there[path]) for path in sorted(traced.modal & there.keys() - asked.keys())],
        [(path, there[path] if path else None, own) for path, own in settings.items()],
    )


def is_plain_value(value: Any) -> bool:
    """Whether a value says all by itself: a number, a text, a function, or several of them."""
    if isinstance(value, tuple | list):
        return all(map(is_plain_value, value))
    return isinstance(value, _PLAIN) and value == value  # NaN equals nothing


def refuse_unheeded_modes(watched: Watched, training: bool) -> None:
    """Refuse modes of modules that a graph cannot follow, of a program in this mode."""
    for path, module in watched.asked:
        if module.training and not training:
            raise _in_training(path)
    for path, module in watched.modal:
        if module.training != training:
            raise _in_another_mode(path, module)


def refuse_unheeded_settings(root: nn.Module, watched: Watched) -> None:
    """Refuse settings of a program's modules that are not those which its graphs have."""
    for path, module, settings in watched.set:
        now = (root if module is None else module).__dict__
        for name, value in settings.items():
            given = now.get(name, value)
            if given is not value and not (is_plain_value(given) and given == value):
                raise _set_otherwise(f"{path}.{name}".lstrip("."), value, given)


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


def _set_otherwise(name: str, traced: Any, now: Any) -> StageError:
    return StageError(
        f"{name!r} is {now!r}, and was {traced!r} when the model was captured: the graph has that, and asks only batch "
        "norms and dropouts of torch.nn. Set it on the model, and capture that."
    )
