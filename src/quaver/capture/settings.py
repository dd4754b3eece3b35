"""The settings of a model's modules that are in its graphs for good: whoever changes one afterwards is to be told."""

import inspect
from collections.abc import Collection
from copy import copy
from types import CodeType
from typing import Any

from torch import fx, nn

from quaver.graph.nodes import modules_in
from quaver.program.module_guards import is_plain_value

_ASKED = frozenset({"eps", "momentum", "p", "track_running_stats", "process_group"})
"""What a graph asks batch norms and dropouts for each time that it runs."""
_FREE = frozenset({"training", "inplace"})
"""Modes are asked for elsewhere; and in place or not, the values are the same."""


def settings_of(model: nn.Module, graphs: Collection[fx.Graph], called: list[set[str]]) -> dict[str, dict[str, Any]]:
    """The plain attributes (strides, rates, flags) that the forward of each called module reads, by the module's path.

    ``called``: the modules that each graph calls.
    """
    asking = {path for graph in graphs for path in modules_in(graph).values()}
    settings, reached = {}, {""}.union(*called)
    for path, module in model.named_modules():
        heeded = _FREE | _ASKED if path in asking else _FREE
        names = (names_read(module) - heeded if path in reached else set()) & vars(module).keys()
        plain = {name: copy(vars(module)[name]) for name in sorted(names) if is_plain_value(vars(module)[name])}
        if plain:
            settings[path] = plain
    return settings


def names_read(module: nn.Module) -> set[str]:
    """The names in the code of a module's forward, and in that of the methods and properties of its class that it names.

    >>> sorted(names_read(nn.Softmax()) & vars(nn.Softmax()).keys())
    ['dim']
    """
    classes = [own for own in type(module).__mro__ if own not in nn.Module.__mro__]
    names, unread = set[str](), {"forward"} | _names_in(vars(module).get("forward"))
    while unread:
        name = unread.pop()
        names.add(name)
        unread |= set[str]().union(*(_names_in(vars(own).get(name)) for own in classes)) - names
    return names


def _names_in(function: Any) -> set[str]:
    """The names in a function's code, and in that of functions inside it; none in what is not written in Python."""
    function = function.fget if isinstance(function, property) else function
    codes = [getattr(inspect.unwrap(function), "__code__", None)]
    names = set()
    while codes:
        code = codes.pop()
        if isinstance(code, CodeType):
            names |= set(code.co_names)
            codes += code.co_consts
    return names
