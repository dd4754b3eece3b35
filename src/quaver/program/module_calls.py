"""The calls of a model's modules, as a graph remembers them."""

import re

from torch import fx

from quaver.graph.nodes import calls_in


class ModuleCalls:
    """Which nodes of a graph hold what each call of a module was given, and what it gave back."""

    def __init__(self, graph: fx.Graph) -> None:
        self.taken: dict[str, dict[int, fx.Node]] = {}
        given, parted, taken = calls_in(graph, "gives", "gives_part", "takes")
        self.given = dict(given)
        self.parted = {call for call, _ in parted}
        for place, node in taken:
            call, _, position = place.rpartition("/")
            self.taken.setdefault(call, {})[int(position)] = node

    def of(self, path: str) -> list[str]:
        """The calls of a module that gave back one tensor, in order."""
        return [call for call in self.given if module_called(call) == path]

    def gives_parts(self, path: str) -> bool:
        """Whether a module gives back several tensors, or one inside something else."""
        return any(module_called(call) == path for call in self.parted)

    def inputs(self, call: str) -> tuple[fx.Node, ...]:
        """The tensors that a call was given, in order."""
        return tuple(node for _, node in sorted(self.taken.get(call, {}).items(), key=lambda item: item[0]))


def called_modules(graph: fx.Graph) -> set[str]:
    """The modules that a graph calls."""
    given, parted, taken = calls_in(graph, "gives", "gives_part", "takes")
    calls = {call for call, _ in (*given, *parted)} | {place.rpartition("/")[0] for place, _ in taken}
    return set(map(module_called, calls))


def module_called(call: str) -> str:
    """The module of a call.

    >>> module_called("layer1.relu@1")
    'layer1.relu'
    """
    return re.sub(r"@\d+$", "", call)
