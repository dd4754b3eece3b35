"""Writes to a part of a tensor (``x[:, 1:] = y``) as new tensors: what a .tflite file holds shares no memory."""

from typing import Any

import torch
from torch import fx

from quaver.capture.functionalize import is_seen_elsewhere, written_by
from quaver.engines.litert.decomposition import not_in_place
from quaver.graph.nodes import argument, packet

aten = torch.ops.aten
VIEWS = ("slice", "select")


def without_writes(module: fx.GraphModule) -> None:
    """Let readers behind a write read a new tensor. Nodes know what they give (``meta["val"]``).

    Left alone: writes to the model's own tensors, and those that are read through another view of the same memory.
    """
    for node in list(module.graph.nodes):
        if written_by(node) and isinstance(target := node.args[0], fx.Node):
            views, base = views_of(target)
            order = {other: place for place, other in enumerate(module.graph.nodes)}
            if base.op == "call_function" and not is_seen_elsewhere(base, node, order):
                with module.graph.inserting_before(node):
                    written = value_of(module.graph, node, target)
                    whole = put_back(module.graph, written, views)
                for reader in [reader for reader in base.users if order.get(reader, -1) > order[node]]:
                    reader.replace_input_with(base, whole)
                node.replace_all_uses_with(written)
                module.graph.erase_node(node)
    module.recompile()


def views_of(target: fx.Node) -> tuple[list[fx.Node], fx.Node]:
    """The views through which a write goes, the innermost first, and the tensor that they are of."""
    views: list[fx.Node] = []
    while target.op == "call_function" and packet(target) in VIEWS:
        views.append(target)
        target = target.args[0]  # type: ignore[assignment]
    return views, target


def value_of(graph: fx.Graph, write: fx.Node, target: fx.Node) -> fx.Node:
    """What a node writes: all of its target."""
    shape = list(target.meta["val"].shape)
    if packet(write) == "copy_":
        return noted(graph.call_function(aten.expand.default, (write.args[1], shape)), write)
    return noted(graph.call_function(not_in_place(write.target), write.args, write.kwargs), write)


def put_back(graph: fx.Graph, value: fx.Node, views: list[fx.Node]) -> fx.Node:
    """The whole tensors with a value where the views were taken."""
    for view in views:
        base: Any = view.args[0]
        dim, place = argument(view, "dim"), (argument(view, "start"), argument(view, "end"), argument(view, "step"))
        if packet(view) == "select":
            index = int(argument(view, "index")) % base.meta["val"].shape[dim]
            place = (index, index + 1, 1)
            value = noted(graph.call_function(aten.unsqueeze.default, (value, dim)), view)
        value = graph.call_function(aten.slice_scatter.default, (base, value, dim, *place))
        value.meta = dict(base.meta)  # of the same shape, and the next write may ask for it
    return value


def noted(node: fx.Node, like: fx.Node) -> fx.Node:
    """A new node with another's notes, all but what it gives."""
    node.meta = {name: note for name, note in like.meta.items() if name != "val"}
    return node
