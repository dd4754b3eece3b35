"""What the quantized tensors of a program are called, in it and in every artefact made of it."""

from typing import Any

from quaver.int8.lowering import is_quantize
from quaver.program import EVAL, Program


def quantized_tensors(program: Program) -> list[str]:
    """A name for every quantize node of the program, in the order of the graph: the tensor's own, made unique."""
    names: list[str] = []
    for node in program.graphs[EVAL].nodes:
        if is_quantize(node):
            name = plain = _source_name(node.args[0], program)
            while name in names:
                name = f"{plain}_{sum(other.startswith(plain) for other in names)}"
            names.append(name)
    return names


def rounded_name(tensor: str) -> str:
    """What a quantized tensor is called behind its dequantize node, in every artefact."""
    return f"{tensor}.rounded"


def _source_name(node: Any, program: Program) -> str:
    if "op" in node.meta:
        return str(node.meta["op"].name)
    inputs = [other for other in program.graphs[EVAL].nodes if other.op == "placeholder"]
    if node in inputs:
        return program.signature.tensors[inputs.index(node)].name
    return _source_name(node.all_input_nodes[0], program) if node.all_input_nodes else str(node.name)
