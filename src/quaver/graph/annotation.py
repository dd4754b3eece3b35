"""Notes on the nodes of a graph that is captured, for those who ask about them later (`quaver.graph.nodes`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from quaver.graph.nodes import MODULE_NOTES, Op


def notes_of(tensor: Any, op: Op | None = None, **facts: bool) -> dict[str, Any]:
    """The notes for a node: of its tensor, if it gives one, the op that it is, and those of the facts that hold."""
    notes: dict[str, Any] = {"dtype": tensor.dtype, "rank": tensor.dim()} if isinstance(tensor, torch.Tensor) else {}
    return notes | {name: True for name, holds in facts.items() if holds} | ({} if op is None else {"op": op})


def note_modules_of(notes: Mapping[fx.Node, dict[str, Any]]) -> None:
    """Note what nodes are to the model's modules: of each, those of `MODULE_NOTES` that it has."""
    for node, own in notes.items():
        node.meta.update(own)


def note_calls(node: fx.Node, note: str, added: Sequence[str]) -> None:
    """Note more calls of modules that a node's tensor belongs to."""
    if added:
        node.meta[note] = [*node.meta.get(note, ()), *added]


def note_written(node: fx.Node) -> None:
    """Note that the model writes into a node's tensor in place."""
    node.meta["written"] = True


def note_constants(graph: fx.Graph) -> set[fx.Node]:
    """Note which calls do not depend on the input; those and the model's tensors."""
    parameters = set(graph.find_nodes(op="get_attr"))
    for node in graph.nodes:
        if node.op == "call_function" and node.all_input_nodes:
            node.meta["constant"] = parameters.issuperset(node.all_input_nodes)
            if node.meta["constant"]:
                parameters.add(node)
    return parameters


def note_ops(graph: fx.Graph, ops: dict[fx.Node, Op]) -> None:
    """Leave on a captured graph our notes alone, among them which nodes are these ops."""
    for node in graph.nodes:
        value, constant = node.meta.get("val"), node.meta.get("constant", False)
        ours = notes_of(value, ops.get(node), written=node.meta.get("written", False), constant=constant)
        ours |= {key: node.meta[key] for key in MODULE_NOTES if key in node.meta}
        if (constant or node.op == "get_attr") and isinstance(value, torch.Tensor):
            ours |= _only_axis(value)
        node.meta = ours


def _only_axis(tensor: torch.Tensor) -> dict[str, int]:
    """The note of the one axis that is longer than 1, if there are not several."""
    long = [place - tensor.dim() for place, size in enumerate(tensor.shape) if size != 1]
    return {} if len(long) > 1 else {"axis": next(iter(long), 0)}
