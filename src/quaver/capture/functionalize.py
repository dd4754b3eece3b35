"""Rewrite ``relu_(x)`` as ``relu(x)``, so that a quantizer can stand between two ops without changing either."""

import torch
from torch import fx

from quaver.graph.annotation import note_written
from quaver.graph.nodes import packet
from quaver.operators import packets_of

_ELEMENTWISE = frozenset(f"{name}_" for name in packets_of("clamp", "activation", "elementwise")) | {
    *("selu_", "celu_", "threshold_", "clamp_min_", "clamp_max_", "neg_", "abs_", "pow_", "masked_fill_"),
    *("dropout_", "feature_dropout_", "alpha_dropout_", "feature_alpha_dropout_"),
}


def functionalize(graph: fx.Graph) -> None:
    """Make elementwise in-place ops return a new tensor; their later readers read that one.

    Left alone: writes to the model's own buffers (counters, statistics), and writes through a view whose base is read
    again, where the write itself is the point.
    """
    order = {node: position for position, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op != "call_function" or packet(node) not in _ELEMENTWISE:
            continue
        target = node.args[0]
        assert isinstance(target, fx.Node)
        if _is_stored(target) or is_seen_elsewhere(target, node, order):
            continue
        pure = getattr(torch.ops.aten, packet(node)[:-1])
        node.target = getattr(pure, node.target._overloadname)
        for reader in [reader for reader in target.users if order[reader] > order[node]]:
            reader.replace_input_with(target, node)


def _is_stored(node: fx.Node) -> bool:
    """Whether a value is memory of the model's own: a buffer, a view of one, or one that was just written to."""
    while node.op == "call_function" and node.all_input_nodes and (_is_view(node) or written_by(node)):
        node = node.all_input_nodes[0]
    return node.op == "get_attr"


def mark_written(graph: fx.Graph) -> None:
    """Mark every tensor whose memory some op still writes to: a quantizer beside it would see it half done."""
    for node in graph.nodes:
        for target in written_by(node):
            if not _is_stored(target):
                for alias in (node, *aliases(target)):
                    note_written(alias)


def written_by(node: fx.Node) -> list[fx.Node]:
    """The tensors whose memory a node writes to."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return []
    arguments = zip(node.target._schema.arguments, node.args, strict=False)
    written = [value for argument, value in arguments if argument.alias_info is not None and argument.alias_info.is_write]
    return [value for value in written if isinstance(value, fx.Node)]


def aliases(target: fx.Node) -> set[fx.Node]:
    """Every node that names the same memory, or part of it."""
    aliases, stack = {target}, [target]
    while stack:
        current = stack.pop()
        viewed = current.all_input_nodes[:1] if _is_view(current) else ()  # behind it stand sizes, which share no memory
        related = [*viewed, *filter(_is_view, current.users)]
        fresh = [node for node in related if node not in aliases and node.op != "get_attr"]
        aliases.update(fresh)
        stack.extend(fresh)
    return aliases


def is_seen_elsewhere(target: fx.Node, write: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Whether a write to ``target`` is read later through another name of the same memory."""
    others = [alias for alias in aliases(target) if alias is not target and order[alias] < order[write]]
    return any(order[reader] > order[write] for alias in others for reader in alias.users)


def _is_view(node: fx.Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return node.op == "call_function"  # getitem of a list of views
    returns = node.target._schema.returns
    may_alias = packet(node) in ("reshape", "flatten", "contiguous", "to", "chunk", "dropout")
    return may_alias or any(value.alias_info is not None and not value.alias_info.is_write for value in returns)
