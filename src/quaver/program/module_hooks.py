"""Hooks on a program's modules: called where the graph still has what the module was given and gave back.

A graph computes what the modules did; it does not call them. Where somebody registered a hook on one, a node that calls it
stands behind the module's output, or in front of its input.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.utils.hooks import RemovableHandle

from quaver.errors import StageError

FORWARD, BEFORE = "_forward_hooks", "_forward_pre_hooks"
BACKWARD = ("_backward_hooks", "_backward_pre_hooks")
HOOKS = (FORWARD, BEFORE, *BACKWARD)


def hooks_of(module: nn.Module, kind: str) -> Mapping[int, Callable[..., Any]]:
    """A module's hooks of a kind, by their numbers, which no two hooks share."""
    return getattr(module, kind, {})


def all_hooks(root: nn.Module, *, inside: bool = True) -> frozenset[int]:
    """The numbers of the hooks on a module, and on those inside it."""
    modules = root.modules() if inside else [root]
    return frozenset(number for module in modules for kind in HOOKS for number in hooks_of(module, kind))


Hooked = frozenset[tuple[str, str]]
"""Modules with hooks: each with its path and the kind of the hooks."""


def hooked_modules(root: nn.Module, graphs: Iterable[fx.Graph], traced: frozenset[int]) -> Hooked:
    """The modules that graphs compute, not call, and that have hooks beside those that were traced into them."""
    called = {node.target for graph in graphs for node in graph.find_nodes(op="call_module")}
    return frozenset(
        (path, kind)
        for path, module in root.named_modules()
        for kind in HOOKS
        if path
        and any(number not in traced for number in hooks_of(module, kind))
        and not any(path == caller or path.startswith(f"{caller}.") for caller in called)
    )


@dataclass
class HookWatch:
    """The modules of a program with hooks, found again when there can be new ones."""

    hooked: Hooked = frozenset()
    _next_number: int = -1

    def is_due(self) -> bool:
        """Whether a hook was registered, on whatever module, since this was last asked: the next hook's number says so."""
        before, self._next_number = self._next_number, RemovableHandle.next_id
        return before != self._next_number

    def find(self, root: nn.Module, graphs: Iterable[fx.Graph], traced: frozenset[int]) -> bool:
        """Look for them; whether they are others than before."""
        before, self.hooked = self.hooked, hooked_modules(root, graphs, traced)
        return before != self.hooked


def refuse_backward_hooks(hooked: Hooked) -> None:
    """Refuse hooks on gradients: they stand around a module's own inputs, and the graph shares those with other modules."""
    for path, kind in hooked:
        if kind in BACKWARD:
            raise StageError(
                f"{path!r} has a backward hook, which a program cannot call: its graph has tensors, not calls of modules. "
                f"Read the tensor with quaver.feature_extractor(program, [{path!r}]) and put tensor.register_hook(…) or "
                "tensor.retain_grad() on it."
            )


@dataclass(frozen=True)
class HookedCall:
    """A call of a module with hooks: the nodes of what it is given and what it gives back.

    ``traced`` are the module's hooks that the graph has already. In a ``rounded`` graph the integers go another way than the
    tensors that are shown.
    """

    path: str
    kinds: frozenset[str]
    inputs: tuple[fx.Node, ...]
    output: fx.Node
    traced: tuple[int, ...]
    rounded: bool = False


def insert_hooks(graph: fx.Graph, hooked_calls: list[HookedCall]) -> None:
    """Call the hooks of modules around their calls, which stand in the order in which they end."""
    now: dict[fx.Node, fx.Node] = {}  # what hooks gave back in the place of a tensor
    for call in hooked_calls:
        inputs, output = tuple(now.get(node, node) for node in call.inputs), now.get(call.output, call.output)
        with graph.inserting_after(_last(graph, *inputs)):
            before = graph.get_attr(call.path)
        given: tuple[Any, ...] = (call.path, before, call.traced, inputs)
        if BEFORE in call.kinds:
            with graph.inserting_after(before):
                before = graph.call_function(call_before, given)
        if FORWARD in call.kinds:
            readers = list(output.users)
            with graph.inserting_after(_last(graph, before, output)):
                now[call.output] = graph.call_function(call_behind, (*given, output, call.rounded))
            for reader in readers:
                if reader.target not in (call_before, call_behind):
                    reader.replace_input_with(output, now[call.output])


def _last(graph: fx.Graph, *nodes: fx.Node) -> fx.Node:
    """The last of some nodes, or of the inputs, which stay in front."""
    wanted = {*nodes, *graph.find_nodes(op="placeholder")}
    return [node for node in graph.nodes if node in wanted][-1]  # type: ignore[no-any-return]


def call_before(path: str, module: nn.Module, traced: tuple[int, ...], inputs: tuple[Any, ...]) -> None:
    """Call a module's forward pre-hooks."""
    for number, hook in list(module._forward_pre_hooks.items()):
        if number in traced:
            continue
        with_kwargs = number in module._forward_pre_hooks_with_kwargs
        if (hook(module, inputs, {}) if with_kwargs else hook(module, inputs)) is not None:  # type: ignore[call-arg, arg-type]
            raise StageError(
                f"{path!r}: its forward pre-hook gives back another input. A program shows a module's input, which others "
                "may share and quantizers may have read already. Let a forward hook on what comes before give back another."
            )


def call_behind(
    path: str, module: nn.Module, traced: tuple[int, ...], inputs: tuple[Any, ...], output: Any, rounded: bool
) -> Any:
    """Call a module's forward hooks; what it gave back, or what a hook gives back instead."""
    for number, hook in list(module._forward_hooks.items()):
        if number in traced:
            continue
        with_kwargs = number in module._forward_hooks_with_kwargs
        instead = hook(module, inputs, {}, output) if with_kwargs else hook(module, inputs, output)  # type: ignore[call-arg, arg-type]
        if instead is not None and rounded:
            raise StageError(
                f"{path!r}: its forward hook gives back another output. A quantized program in evaluation computes on "
                "integers, and shows tensors without reading them. Let the hook give back another in training, or in the "
                "float program."
            )
        output = output if instead is None else instead
    return output
