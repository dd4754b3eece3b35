"""Guards: what a program's graphs take for granted about its modules, checked before they run.

A traced graph has the modes and settings of the capture as constants. Where a module says otherwise now, the graph would
compute something else than the model, and that is refused by name.
"""

from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, NamedTuple

from torch import fx, nn

from quaver.errors import StageError
from quaver.program.stateful_ops import stateful_nodes
from quaver.program.traced import Traced

_PLAIN = (bool, int, float, str, NoneType, FunctionType, BuiltinFunctionType)


class ModuleGuards(NamedTuple):
    """The modules to check, with their paths.

    ``stateful``: batch norms and dropouts, which the graphs ask while they run. ``modal``: other modules that do something
    else in training. ``settings``: modules whose plain attributes the graphs have as constants; the program itself stands
    there as None, because it holds these guards and must not hold itself.
    """

    stateful: list[tuple[str, nn.Module]]
    modal: list[tuple[str, nn.Module]]
    settings: list[tuple[str, nn.Module | None, dict[str, Any]]]


def module_guards(
    root: nn.Module, graphs: Iterable[fx.Graph], traced: Traced, attributes: Mapping[str, Any]
) -> ModuleGuards:
    """The guards of a program as its modules are now; ``attributes`` are those that it has from its model."""
    stateful = {path: module for _, path, module in stateful_nodes(root, *graphs)}
    modules = dict(root.named_modules()) if traced.modal or traced.settings else {}
    settings = {path: own for path, own in traced.settings.items() if path in modules}
    if "" in settings:
        settings[""] = {name: value for name, value in settings[""].items() if name in attributes}
    return ModuleGuards(
        list(stateful.items()),
        [(path, modules[path]) for path in sorted(traced.modal & modules.keys() - stateful.keys())],
        [(path, modules[path] if path else None, own) for path, own in settings.items()],
    )


def is_plain_value(value: Any) -> bool:
    """Whether a value can be compared by itself: a number, a text, a function, or several of them."""
    if isinstance(value, tuple | list):
        return all(map(is_plain_value, value))
    return isinstance(value, _PLAIN) and value == value  # NaN equals nothing


def refuse_changed_modes(guards: ModuleGuards, training: bool) -> None:
    """Refuse modules in a mode that the graph of a program in this mode cannot follow."""
    for path, module in guards.stateful:
        if module.training and not training:
            raise _in_training(path)
    for path, module in guards.modal:
        if module.training != training:
            raise _in_another_mode(path, module)


def refuse_changed_settings(root: nn.Module, guards: ModuleGuards) -> None:
    """Refuse settings of modules that changed since the graphs were traced."""
    for path, module, settings in guards.settings:
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
