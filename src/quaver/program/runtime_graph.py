"""The graph of a program as it runs: modules asked for their settings, hooks called, tensors on the way given back."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import fx

from quaver.checking import nearest
from quaver.errors import InputError, StageError
from quaver.graph.copying import copy_graph
from quaver.graph.nodes import facts, is_fake_quant, ops_by_name
from quaver.graph.patterns import folded_behind
from quaver.program.module_calls import ModuleCalls, module_called
from quaver.program.module_hooks import FORWARD, Hooked, HookedCall, all_hooks, insert_hooks, refuse_backward_hooks
from quaver.program.stateful_ops import ask_eps, ask_modules
from quaver.program.views import read

if TYPE_CHECKING:
    from quaver.program.program import Program


def training_graph(program: "Program", features: tuple[str, ...], hooked: Hooked) -> fx.Graph:
    """The training graph, which asks its modules, calls their hooks, and gives back these features behind its outputs."""
    graph = copy_graph(program.graphs["train"])
    calls = _hooked_calls(program, graph, hooked)
    _give_back(graph, [_feature(graph, name) for name in features])
    insert_hooks(graph, calls)
    ask_modules(program, graph)
    return graph


def evaluation_graph(program: "Program", features: tuple[str, ...], hooked: Hooked) -> fx.Graph:
    """The evaluation graph in the arithmetic of its engine, with the same beside it: what it computes stays the same."""
    graph = copy_graph(program.graphs["eval"])
    ask_eps(program, graph)
    calls = _hooked_calls(program, graph, hooked)
    wanted = {name: _feature(graph, name) for name in features}
    lowering = program.engine.lowering()
    shown = [*wanted.values(), *(node for call in calls for node in (*call.inputs, call.output))]
    lowered = lowering.run(graph, kept=shown)
    copies, folded = lowering.copies, _folded(graph, lowering.copies)
    for name, node in (*wanted.items(), *((call.path, call.output) for call in calls if FORWARD in call.kinds)):
        if node in folded:
            raise StageError(
                f"{name!r}: in evaluation a quantized convolution and its batch norm are one op, and there is no tensor "
                "between them. Look at what the batch norm gives back, or look in training."
            )
    _give_back(lowered, [copies[node] for node in wanted.values()])
    rounded = not program.stage.trains or any(map(is_fake_quant, graph.nodes))
    insert_hooks(
        lowered,
        [
            replace(
                call,
                inputs=tuple(copies[node] for node in call.inputs if node not in folded),
                output=copies[call.output],
                rounded=rounded,
            )
            for call in calls
        ],
    )
    return lowered


def check_features(program: "Program", names: Iterable[str]) -> None:
    """Refuse names that stand for no tensor of the program, in training or in evaluation."""
    for name in names:
        errors = []
        for graph in program.graphs.values():
            try:
                _feature(graph, name)
            except InputError as error:
                errors.append(error)
        if len(errors) == len(program.graphs):
            raise errors[0]


def _give_back(graph: fx.Graph, nodes: Iterable[fx.Node]) -> None:
    """Let a graph give back more tensors, behind its outputs."""
    output = graph.output_node()
    outputs: Any = output.args[0]
    output.args = ([*outputs, *nodes],)


def _feature(graph: fx.Graph, name: str) -> fx.Node:
    """The tensor that a module of this path gives back, or an op of this name."""
    calls, ops = ModuleCalls(graph), ops_by_name(graph)
    several = calls.of(name)
    if len(several) > 1:
        numbered = ", ".join(repr(f"{name}@{number}") for number in range(len(several)))
        raise InputError(f"{name!r} is called {len(several)} times. Name one of the calls: {numbered}.")
    if calls.gives_parts(name):
        raise InputError(f"{name!r} gives back several tensors. Name a module inside it, or an op of program.ops().")
    node = calls.given.get(name.removesuffix("@0"), ops.get(name))
    if node is None:
        names = [*dict.fromkeys(map(module_called, calls.given)), *ops]
        raise InputError(f"{name!r} is neither a module that the graph calls nor an op of it.{nearest(name, names)}")
    return node


def _hooked_calls(program: "Program", graph: fx.Graph, hooked: Hooked) -> list[HookedCall]:
    """The calls of modules with hooks, in the order in which they end; what cannot be hooked is refused."""
    if not hooked:
        return []
    refuse_backward_hooks(hooked)
    _refuse_gone(program, graph)
    calls = ModuleCalls(graph)
    kinds = {path: frozenset(kind for other, kind in hooked if other == path) for path, _ in hooked}
    for path in kinds:
        if calls.gives_parts(path):
            raise StageError(
                f"{path!r} has a hook, and it gives back several tensors, or one inside something else: a program calls "
                "hooks of modules that give back one tensor. Put it on a module inside this one or around it."
            )
    return [
        HookedCall(path, kinds[path], calls.inputs(call), node, _traced(program, path))
        for call, node in calls.given.items()
        if (path := module_called(call)) in kinds
    ]


def _refuse_gone(program: "Program", graph: fx.Graph) -> None:
    """Refuse hooks that put tensors into the place of parameters, as pruning does: the graph reads before they run."""
    for node in graph.find_nodes(op="get_attr"):
        try:
            read(program, node.target)
        except KeyError:
            raise StageError(
                f"{node.target!r} is no parameter or buffer of the program any more: it was pruned, say. Do that to the "
                "model, and capture it then."
            ) from None


def _traced(program: "Program", path: str) -> tuple[int, ...]:
    """The hooks of a module that were traced into the graph."""
    numbers = all_hooks(read(program, path), inside=False)
    return tuple(sorted(numbers & program.traced.hooks))


def _folded(graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> set[fx.Node]:
    """The tensors that are not there, because a layer computes what follows by itself: a batch norm, a product."""
    parts = [[node, *folded_behind(node)] for node in graph.nodes if facts(node).is_layer]
    return {node for several in parts if copies[several[0]] is copies[several[-1]] for node in several[:-1]}
