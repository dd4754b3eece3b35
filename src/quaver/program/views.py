"""Modules that are other objects over the same tensors."""

import keyword
import re
from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from itertools import repeat
from operator import is_not
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo import OptimizedModule

from quaver.graph.nodes import behind


def view(module: nn.Module, seen: dict[int, nn.Module] | None = None) -> nn.Module:
    """A copy of a module tree that shares every parameter and buffer, for good.

    The copies hold the originals' own dictionaries of tensors, so ``.to()``, a training step or a loaded checkpoint on
    one side is there on the other. Train/eval mode, switches and hooks are each side's own; a copy begins with the
    original's hooks.
    """
    seen = {} if seen is None else seen
    if id(module) not in seen:
        twin: nn.Module = object.__new__(type(module))  # copy.copy would ask the class, and some refuse
        hooks = {key: copy(table) for key, table in module.__dict__.items() if "_hooks" in key and isinstance(table, dict)}
        twin.__dict__.update(module.__dict__ | hooks)
        seen[id(module)] = twin
        # straight into its own dictionary: a compiled module hands attributes on to the module that it was made of
        twin.__dict__["_modules"] = {name: None if m is None else view(m, seen) for name, m in module._modules.items()}
    return seen[id(module)]


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` was given, where this is what it made of it."""
    return module._orig_mod if isinstance(module, OptimizedModule) else module


def set_submodule(root: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module at a dotted path."""
    container, leaf = parent_module(root, path)
    container._modules[leaf] = module


def parent_module(root: nn.Module, path: str) -> tuple[nn.Module, str]:
    """The container for what stands at a dotted path, made if need be, and its name in there."""
    *parents, leaf = path.split(".")
    for name in parents:
        if root._modules.get(name) is None:
            root._modules[name] = nn.Module()
        root = root._modules[name]  # type: ignore[assignment]
    return root, leaf


def read(root: nn.Module, path: str) -> Any:
    """The tensor or module at a dotted path. Asks the module's own tables, where no method can hide a child's name."""
    module: Any = root
    *parents, leaf = path.split(".")
    for name in parents:
        module = module._modules.get(name)
        if module is None:
            raise KeyError(path)
    return _held(module, leaf, path)


def _held(module: nn.Module, name: str, path: str) -> Any:
    """The tensor or module that a module holds under a name, which has this path from the root."""
    return module.__dict__[_table(module, name, path)][name]


def _table(module: nn.Module, name: str, path: str) -> str:
    """Which of a module's tables holds something under a name."""
    for table in ("_parameters", "_modules", "_buffers"):
        if module.__dict__[table].get(name) is not None:
            return table
    raise KeyError(path)


def value_of(root: nn.Module, node: Any) -> Any:
    """What a node that depends on no input gives: a tensor of the module's, or what the graph computes from some.

    What is no node, a number or None, is itself.
    """
    if not isinstance(node, fx.Node):
        return node
    if node.op == "get_attr":
        return read(root, node.target)  # type: ignore[arg-type]
    values: dict[fx.Node, Any] = {}
    for source in behind(node):
        args, kwargs = fx.map_arg((source.args, source.kwargs), values.__getitem__)  # type: ignore[misc]
        values[source] = read(root, source.target) if source.op == "get_attr" else source.target(*args, **kwargs)  # type: ignore[arg-type,operator]
    return values[node]


def reads_module(node: fx.Node) -> bool:
    """Is its target a path into the module tree?"""
    return node.op in ("get_attr", "call_module")


def is_plain(path: str) -> bool:
    """Can a dotted path be written into code as it is? Names of modules can be any text; other ones are never code."""
    return all(re.fullmatch(r"[A-Za-z0-9_]+", name) and not keyword.iskeyword(name) for name in path.split("."))


def _spelled_safely(graph: fx.Graph) -> fx.Graph:
    r"""The graph with every name that is not plain spelled in escapes: torch writes it between quotes, and checks nothing.

    A name ``a"b`` becomes ``\U00000061\U00000022\U00000062``, which no quote can end and Python reads as the name again.
    """
    if all(is_plain(node.target) for node in graph.nodes if reads_module(node)):
        return graph
    graph = deepcopy(graph)
    for node in filter(reads_module, graph.nodes):
        names = node.target.split(".")
        node.target = ".".join(
            name if is_plain(name) else "".join(f"\\U{ord(character):08x}" for character in name) for name in names
        )
    return graph


def graph_module(root: nn.Module, graph: fx.Graph, renamed: str) -> fx.GraphModule:
    """A graph with the tensors and modules of ``root`` that it reads.

    What stands at a path that is taken, or that cannot be written into code, stands below ``renamed`` instead.
    """
    tensors, taken = nn.Module(), fx.GraphModule(nn.Module(), fx.Graph())
    for index, node in enumerate(filter(reads_module, graph.nodes)):
        value = read(root, node.target)
        if not is_plain(node.target) or hasattr(taken, node.target.split(".")[0]):
            node.target = f"{renamed}.{index}"
        container, leaf = parent_module(tensors, node.target)
        table = container._modules if isinstance(value, nn.Module) else container._buffers
        table[leaf] = value
    tensors.training = root.training
    return fx.GraphModule(tensors, graph)


class Executable(nn.Module):
    """A graph as something to call, reading the very tensors and modules of ``root``."""

    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        super().__init__()
        self._parameters, self._buffers, self._modules = root._parameters, root._buffers, root._modules
        # names that no child has; compilers follow modules' attributes, which take longer to read than their tables
        self.__run_by_attributes = _function(_spelled_safely(graph))
        self.__readings = Readings(str(node.target) for node in filter(reads_module, graph.nodes))
        self.__run = _function(self.__readings.renamed(graph))

    def forward(self, *inputs: Any) -> Any:
        """Run the graph."""
        if torch.compiler.is_compiling():
            return self.__run_by_attributes(self, *inputs)
        return self.__run(self.__readings.of(self), *inputs)


def _function(graph: fx.Graph) -> Callable[..., Any]:
    """The code of a graph: a function of what has the tensors and modules, and of the inputs."""
    code = graph.python_code("self")
    names = dict(code.globals)
    exec(compile(code.src, "<quaver graph>", "exec"), names)
    return names["forward"]  # type: ignore[no-any-return]


class Readings:
    """What is read of a module tree, each under a plain name; found anew each time, for any of it may be replaced.

    A module that is on the way to several is looked for once. All of it is one function, written at the first reading:
    a network has several hundred tensors, and a step on an accelerator waits for none of its kernels as long.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.names: dict[str, str] = {}
        self.leaves: list[tuple[str, int, str]] = []
        """The paths, the places of the modules that hold them, and their names there."""
        self.modules: list[tuple[int, str]] = []
        """The modules on the way: their containers' places, 0 for the root, and their names."""
        self.places = {"": 0}
        for path in dict.fromkeys(paths):
            self.names[path] = f"read_{len(self.names)}"
            container, _, leaf = path.rpartition(".")
            self.leaves.append((path, self._place(container), leaf))
        self._at_once: Callable[[nn.Module], tuple[Any, ...]] | None = None

    def _place(self, path: str) -> int:
        if path not in self.places:
            container, _, name = path.rpartition(".")
            self.modules.append((self._place(container), name))
            self.places[path] = len(self.modules)
        return self.places[path]

    def renamed(self, graph: fx.Graph) -> fx.Graph:
        """The graph with the plain names."""
        graph = deepcopy(graph)
        for node in filter(reads_module, graph.nodes):
            node.target = self.names[node.target]
        return graph

    def of(self, root: nn.Module) -> Any:
        """What there is now, as attributes."""
        return SimpleNamespace(**dict(zip(self.names.values(), self.values(root), strict=True)))

    def values(self, root: nn.Module) -> tuple[Any, ...]:
        """What there is now, in the order of `names`."""
        try:
            if self._at_once is None:
                self._at_once = self._written(root)
            values = self._at_once(root)
        except KeyError:  # a tensor has gone, or it is another kind of thing than it was
            self._at_once = self._written(root)
            values = self._at_once(root)
        if all(map(is_not, values, repeat(None))):
            return values
        return tuple(read(root, path) for path in self.names)  # which says what is missing

    def _written(self, root: nn.Module) -> Callable[[nn.Module], tuple[Any, ...]]:
        """All of it read from the tables that it stands in now, as code."""
        modules: list[nn.Module] = [root]
        lines = ["def values(m0):"]
        for container, name in self.modules:
            lines.append(f"    m{len(modules)} = m{container}._modules[{name!r}]")
            modules.append(modules[container]._modules[name])  # type: ignore[arg-type]
        tables = [_table(modules[container], leaf, path) for path, container, leaf in self.leaves]
        leaves = zip(self.leaves, tables, strict=True)
        reads = "".join(f"m{container}.{table}[{leaf!r}], " for (_, container, leaf), table in leaves)
        names: dict[str, Any] = {}
        exec(compile("\n".join([*lines, f"    return ({reads})"]), "<quaver readings>", "exec"), names)
        return names["values"]  # type: ignore[no-any-return]
