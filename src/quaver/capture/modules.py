"""Which nodes of a graph the model's modules were given and gave back, and which of them follow a module's settings."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from warnings import warn

from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import get_innermost_proxy_mode, get_proxy_slot
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree

from quaver.errors import QuaverWarning
from quaver.graph.annotation import note_modules_of
from quaver.graph.nodes import argument, calls, modules_in, ops_by_name, packet
from quaver.program.module_hooks import HOOKS, hooks_of

DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
_KEY = "quaver_calls"


@contextmanager
def calls_marked(model: nn.Module) -> Iterator[None]:
    """While a model is traced, mark the nodes of the tensors that each of its modules is given and gives back."""
    handles = []
    for path, module in model.named_modules():
        if path:
            marking = _Marking(path)
            handles += [module.register_forward_pre_hook(marking.taken), module.register_forward_hook(marking.given)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Marking:
    """Hooks that mark what the calls of one module are given and give back."""

    def __init__(self, path: str) -> None:
        self.path, self.count = path, 0

    @property
    def call(self) -> str:
        return f"{self.path}@{self.count}" if self.count else self.path

    def taken(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        for position, value in enumerate(args):
            _annotate_call(value, "takes", f"{self.call}/{position}")

    def given(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        for leaf in pytree.tree_leaves(output):
            _annotate_call(leaf, "gives" if leaf is output else "gives_part", self.call)
        self.count += 1


def _annotate_call(value: Any, note: str, call: str) -> None:
    """Leave a mark on the node of a tensor, where torch's own passes over a trace let it be."""
    mode = get_innermost_proxy_mode()
    proxy_slot = get_proxy_slot(value, mode.tracer, None) if mode is not None and isinstance(value, Tensor) else None
    if proxy_slot is not None:
        meta = proxy_slot.proxy.node.meta
        meta["custom"] = {**meta.get("custom", {}), _KEY: [*meta.get("custom", {}).get(_KEY, []), (note, call)]}


Places = dict[fx.Node, tuple[str, str]]
"""Path and class of the innermost module that each node was called in, as `innermost` has them."""


def note_modules(graph: fx.Graph, model: nn.Module, places: Places) -> None:
    """Turn the marks into notes, and note which nodes compute a batch norm or dropout of the model."""
    modules = dict(model.named_modules(remove_duplicate=False))
    first_path = {module: path for path, module in model.named_modules()}
    notes: dict[fx.Node, dict[str, Any]] = {}
    for node in graph.nodes:
        own: dict[str, Any] = {}
        if isinstance(node.meta.get("val"), Tensor):  # torch copies marks to a size that it reads of the tensor
            for note, call in node.meta.get("custom", {}).get(_KEY, ()):
                own.setdefault(note, []).append(call)
        module = modules.get(places[node][0])
        if isinstance(module, _BatchNorm | _DropoutNd) and _computes(node, first_path[module], module):
            own["module"] = first_path[module]
        notes[node] = own
    note_modules_of(notes)


def _computes(node: fx.Node, path: str, module: nn.Module) -> bool:
    """Whether a node does what torch's own forward of its module does, with the module's settings."""
    if isinstance(module, _BatchNorm) and calls(node, "batch_norm"):
        mean, var, eps = argument(node, "running_mean"), argument(node, "running_var"), argument(node, "eps")
        statistics = (getattr(mean, "target", None), getattr(var, "target", None))
        own = (f"{path}.running_mean", f"{path}.running_var")
        return eps == module.eps and statistics in ((None, None), own)
    is_dropout = node.op == "call_function" and packet(node).rstrip("_") in DROPOUTS
    return is_dropout and isinstance(module, _DropoutNd) and argument(node, "p") == module.p


def innermost(graphs: Iterable[fx.Graph]) -> Places:
    """Where each node of some graphs was called; asked before the tracer's own notes are dropped."""
    return {node: _innermost(node) for graph in graphs for node in graph.nodes}


def _innermost(node: fx.Node) -> tuple[str, str]:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", ""
    path, module_type = stack[-1]
    # the model stands under "model" in the wrapper that was traced; "@1" marks the second call of a module
    inner = path.split("@")[0].removeprefix("model").lstrip(".")
    return inner, module_type if isinstance(module_type, str) else f"{module_type.__module__}.{module_type.__qualname__}"


def modal_modules(graphs: Collection[fx.Graph], places: Places, called: list[set[str]]) -> frozenset[str]:
    """The paths of modules, beside batch norms and dropouts, that compute one thing in training and another in evaluation.

    A stochastic depth is one, an attention with dropout, a block that calls ``F.dropout``: what they do in each mode, with
    the rates that they had, is in the graphs, whose ops have names. ``called``: the modules that each graph calls.
    """
    if len(graphs) < 2:
        return frozenset()
    ops = list(map(ops_by_name, graphs))
    asking = set().union(*map(modules_in, graphs))
    apart = [
        node
        for here, there in (ops, reversed(ops))
        for name, node in here.items()
        if node not in asking and (name not in there or _constants(node) != _constants(there[name]))
    ]
    return frozenset({places[node][0] for node in apart} & called[0].intersection(*called[1:]))


def classes_in(model: nn.Module) -> dict[str, type[nn.Module]]:
    """The classes of the modules inside a model."""
    return {path: type(module) for path, module in model.named_modules() if path}


def _constants(node: fx.Node) -> list[Any]:
    return [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, bool | int | float)]


def warn_of_traced_hooks(model: nn.Module, *, stacklevel: int) -> None:
    """Say of hooks that somebody registered before capture that they were traced, and will not run again."""
    for path, module in model.named_modules():
        for kind in HOOKS:
            for hook in hooks_of(module, kind).values():
                made_by = getattr(hook, "__module__", None) or type(hook).__module__
                if path and not made_by.startswith("torch."):  # weight norm and pruning compute what the graph now does
                    warn(
                        f"{path!r} had a hook when it was captured ({getattr(hook, '__qualname__', type(hook).__name__)}): "
                        "what it computed was traced into the graph, and it is not called again. Register hooks that look "
                        "at tensors on the program's modules, after capture.",
                        QuaverWarning,
                        stacklevel=stacklevel + 1,
                    )
                    return


@contextmanager
def momenta_as_numbers(model: nn.Module) -> Iterator[None]:
    """While a model is traced, give batch norms that average over all batches (``momentum=None``) a number instead.

    Which part a batch has then depends on a counter's value, and a graph has no place for it; the module has, where it does
    what torch's own does.
    """
    own = (_BatchNorm.forward, nn.SyncBatchNorm.forward)
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and type(module).forward in own]
    cumulative = [module for module in norms if module.momentum is None]
    for module in cumulative:
        module.momentum = 0.1
    try:
        yield
    finally:
        for module in cumulative:
            module.momentum = None
