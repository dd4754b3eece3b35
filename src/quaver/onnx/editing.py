"""Small edits of an ONNX model that the writers of several engines make."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir


def constant(graph: ir.Graph, name: str | None, array: Any) -> ir.Value:
    """A constant of the graph, under a name of its own."""
    while name in graph.initializers:
        name = f"{name}_"
    value = ir.val(name, const_value=ir.tensor(np.asarray(array), name=name))
    value.type, value.shape = ir.TensorType(value.const_value.dtype), value.const_value.shape  # type: ignore[union-attr,assignment]
    graph.register_initializer(value)
    return value


def operand(node: ir.Node, place: int = 0) -> ir.Value:
    """An input that a node must have."""
    value = node.inputs[place]
    assert value is not None, f"{node.op_type} without input {place}"
    return value


def array_of(value: ir.Value | None) -> Any:
    """What a constant holds; None for what is none."""
    return value.const_value.numpy() if value is not None and value.const_value is not None else None


def replace(node: ir.Node, value: ir.Value) -> None:
    """Let whoever reads what a node gives read another value, and take the node out."""
    node.outputs[0].replace_all_uses_with(value)
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def insert_before(node: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], name: str) -> ir.Value:
    """What a new node gives, which stands in front of another; both have this name."""
    added = ir.node(op_type, inputs, outputs=[ir.val(name)], name=name)
    assert node.graph is not None
    node.graph.insert_before(node, added)
    return added.outputs[0]


def only_reader(value: ir.Value) -> ir.Node | None:
    """The node that reads a value, where it is the only one and the model does not give it."""
    readers = [reader for reader, _ in value.uses()]
    return readers[0] if len(readers) == 1 and not value.is_graph_output() else None


def made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that gives a value, if it is of these types."""
    maker = value.producer() if value is not None else None
    return maker if maker is not None and maker.op_type in op_types else None
