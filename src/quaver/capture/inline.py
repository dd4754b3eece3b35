"""Bring the body of a ``torch.no_grad()`` block into the graph around it, so that passes and files see its ops."""

import operator
from typing import Any, cast

import torch
from torch import fx


def inline_no_grad(graph: fx.Graph, owner: fx.GraphModule) -> None:
    """Replace ``no_grad(body)(x)`` by the body's ops, detached at the end: the same values, and no gradient either."""
    wrap = getattr(torch.ops.higher_order, "wrap_with_set_grad_enabled", None)
    for node in [node for node in graph.nodes if node.op == "call_function" and node.target is wrap]:
        enabled, body_reader, *inputs = cast(Any, node.args)
        body = cast(fx.GraphModule, owner.get_submodule(body_reader.target)).graph
        outer = dict(zip((inner for inner in body.nodes if inner.op == "placeholder"), inputs, strict=True))
        with graph.inserting_before(node):
            if any(_writes_to_an_argument(inner) for inner in body.nodes):  # autograd refuses those on what requires grad
                outer = {inner: detached(graph, value, bool(enabled)) for inner, value in outer.items()}
            outputs: Any = graph.graph_copy(body, outer)
            for old, new in outer.items():
                if old.op != "placeholder":
                    new.meta = dict(old.meta)
            several = isinstance(outputs, tuple | list)
            results = [detached(graph, value, bool(enabled)) for value in (outputs if several else (outputs,))]
        for reader in list(node.users):
            if several and reader.target is operator.getitem:
                reader.replace_all_uses_with(results[cast(int, reader.args[1])])
                graph.erase_node(reader)
        if node.users:
            node.replace_all_uses_with(results[0])
        graph.erase_node(node)
        if not body_reader.users:
            graph.erase_node(body_reader)


def _writes_to_an_argument(node: fx.Node) -> bool:
    """Whether an op has an ``out=`` argument."""
    return isinstance(node.target, torch._ops.OpOverload) and any(arg.is_out for arg in node.target._schema.arguments)


def detached(graph: fx.Graph, value: fx.Node, enabled: bool) -> fx.Node:
    """``value`` without its gradient, unless gradients are enabled."""
    if enabled or not isinstance(value, fx.Node):
        return value
    node = graph.call_function(torch.ops.aten.detach.default, (value,))
    node.meta = dict(value.meta)
    return node
