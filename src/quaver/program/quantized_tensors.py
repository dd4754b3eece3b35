"""What the quantized tensors of a program are called, in it and in every artefact made of it."""

from typing import Any

from torch import fx

from quaver.graph.nodes import is_op, is_quantize, op_of
from quaver.program import EVAL, Program


def quantize_nodes(program: Program) -> dict[str, fx.Node]:
    """Every quantize node of the program, in the order of the graph, by its tensor's own name, made unique."""
    named: dict[str, fx.Node] = {}
    for node in filter(is_quantize, program.graphs[EVAL].nodes):
        name = plain = _source_name(node.args[0], program)
        while name in named:
            name = f"{plain}_{sum(other.startswith(plain) for other in named)}"
        named[name] = node
    return named


def quantized_tensors(program: Program) -> list[str]:
    """The names of the program's quantized tensors, in the order of the graph."""
    return list(quantize_nodes(program))


def rounded_name(tensor: str) -> str:
    """What a quantized tensor is called behind its dequantize node, in every artefact."""
    return f"{tensor}.rounded"


def _source_name(node: Any, program: Program) -> str:
    if is_op(node):
        return str(op_of(node).name)
    inputs = [other for other in program.graphs[EVAL].nodes if other.op == "placeholder"]
    if node in inputs:
        return program.signature.tensors[inputs.index(node)].name
    return _source_name(node.all_input_nodes[0], program) if node.all_input_nodes else str(node.name)
