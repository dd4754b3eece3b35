"""What a node of a graph is, and what Quaver noted about it. The notes in ``node.meta`` are read and written here only.

Nodes carry torch's own notes while a model is captured; ours are the fields of `NOTES`, which are saved with a program, the
op that a node is, and, in a lowered graph, the quantize node whose integers a node computes.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

NOTES = {"dtype": torch.dtype, "rank": int, "quantizer": str, "signed": bool, "written": bool, "constant": bool}
"""Facts about a node's tensor. ``quantizer``: the node calls this tensor's quantizer, on a ``signed`` grid. ``written``: the
model writes into it in place. ``constant``: it does not depend on the input."""


@dataclass(frozen=True)
class Op:
    """An op as the model's author knows it."""

    name: str
    type: str
    scope: str
    source: str


# what is noted


def is_op(node: fx.Node) -> bool:
    """Whether a node is an op to the model's author; quantizers, casts and shape arithmetic are none."""
    return "op" in node.meta


def op_of(node: fx.Node) -> Op:
    """The op that a node is."""
    return node.meta["op"]  # type: ignore[no-any-return]


def ops_by_name(graph: fx.Graph) -> dict[str, fx.Node]:
    """The nodes that are ops, by the ops' names."""
    return {op_of(node).name: node for node in graph.nodes if is_op(node)}


def quantizer_of(node: fx.Node) -> str:
    """The tensor whose quantizer a node calls; empty for any other node."""
    return str(node.meta.get("quantizer", ""))


def is_signed(node: fx.Node) -> bool:
    """Whether the quantizer that a node calls has a signed grid."""
    return bool(node.meta.get("signed", True))


def is_written(node: fx.Node) -> bool:
    """Whether the model writes into a tensor in place."""
    return bool(node.meta.get("written", False))


def rank_of(node: Any) -> int | None:
    """How many dimensions a tensor has, if that is known."""
    return node.meta.get("rank")  # type: ignore[no-any-return]


def dtype_of(node: fx.Node) -> torch.dtype | None:
    """A tensor's dtype, if it is known."""
    return node.meta.get("dtype")


def tensor_notes(node: fx.Node, **changes: Any) -> dict[str, Any]:
    """The notes for another node with a tensor like this one's, which is not the op itself."""
    return {key: value for key, value in node.meta.items() if key != "op"} | changes


def note_integers(node: fx.Node, quantize: fx.Node) -> None:
    """Note that a node of a lowered graph computes the integers of a quantize node."""
    node.meta["integers"] = quantize.name


def integers_by_quantize_node(graph: fx.Graph) -> dict[str, fx.Node]:
    """The nodes that compute integers, by the names of the quantize nodes they come from."""
    return {node.meta["integers"]: node for node in graph.nodes if "integers" in node.meta}


def notes_of(tensor: Any, op: Op | None = None, **facts: bool) -> dict[str, Any]:
    """The notes for a node: of its tensor, if it gives one, the op that it is, and those of the facts that hold."""
    notes: dict[str, Any] = {"dtype": tensor.dtype, "rank": tensor.dim()} if isinstance(tensor, torch.Tensor) else {}
    return notes | {name: True for name, holds in facts.items() if holds} | ({} if op is None else {"op": op})


def note_written(node: fx.Node) -> None:
    """Note that the model writes into a node's tensor in place."""
    node.meta["written"] = True


# what it calls


def packet(node: fx.Node) -> str:
    """The op's own name without namespace and overload: ``conv2d`` for ``aten.conv2d.padding``."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[1]
    return getattr(node.target, "__name__", str(node.target))


def calls(node: Any, *names: str) -> bool:
    """Whether a value of a graph is a call of one of these ops."""
    return isinstance(node, fx.Node) and node.op == "call_function" and packet(node) in names


def results(node: fx.Node) -> list[fx.Node]:
    """The tensors an op gives: itself, or the parts of a split."""
    parts = [user for user in node.users if calls(user, "getitem")]
    return parts or [node]


def argument(node: fx.Node, name: str, default: Any = None) -> Any:
    """An op's argument by its name in the schema, wherever the graph wrote it."""
    if name in node.kwargs:
        return node.kwargs[name]
    assert isinstance(node.target, torch._ops.OpOverload)
    for position, parameter in enumerate(node.target._schema.arguments):
        if parameter.name == name:
            if position < len(node.args):
                return node.args[position]
            return parameter.default_value if parameter.has_default_value() else default
    return default


def is_fake_quant(node: Any) -> bool:
    """Whether a node calls a quantizer."""
    return isinstance(node, fx.Node) and node.op == "call_module" and bool(quantizer_of(node))


def is_quantize(node: Any) -> bool:
    """Whether a node is a ``quantized_decomposed`` quantize."""
    return isinstance(node, fx.Node) and node.op == "call_function" and packet(node).startswith("quantize_per_")


def is_dequantize(node: Any) -> bool:
    """Whether a node is a ``quantized_decomposed`` dequantize."""
    return isinstance(node, fx.Node) and node.op == "call_function" and packet(node).startswith("dequantize_per_")


def is_parameter(node: Any) -> bool:
    """Whether a graph value does not depend on the input: read from the model, or computed from what is."""
    return isinstance(node, fx.Node) and (node.op == "get_attr" or node.meta.get("constant", False))


def is_stored(node: Any, rank: int | None = None) -> bool:
    """Whether a graph value is read from the model as it is (with this many dimensions)."""
    return isinstance(node, fx.Node) and node.op == "get_attr" and rank in (None, rank_of(node))


def stored_weight(dequantized: fx.Node) -> fx.Node:
    """The constant behind the dequantize node of a weight, which may be kept as float32 integers behind a cast."""
    source = dequantized
    while source.op != "get_attr":
        source = source.args[0]  # type: ignore[assignment]
    return source


def copy_graph(graph: fx.Graph) -> fx.Graph:
    """A graph with nodes of its own."""
    twin = fx.Graph()
    names: dict[fx.Node, fx.Node] = {}
    result = twin.graph_copy(graph, names)
    twin.output(result)
    for old, new in names.items():
        new.meta = dict(old.meta)
    return twin
