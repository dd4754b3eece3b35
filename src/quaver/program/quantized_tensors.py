"""The quantized tensors of a frozen program: their names, in it and in every artefact made of it, and their grids."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from torch import fx

from quaver.graph.nodes import is_dequantize, is_op, is_quantize, op_of
from quaver.operators import moves_values
from quaver.program.program import EVAL, Program
from quaver.program.signature import Signature


@dataclass(frozen=True)
class QuantizedTensor:
    """A tensor that a frozen program rounds: its name, what makes it (an op or an input), the nodes that round it, its grid.

    ``low`` and ``high`` are the ends of the grid, in steps from zero. ``moved_from`` is the dequantize node of the tensor
    whose grid it lies on already, where an op only moved that tensor. Who reads it are the users of ``dequantize``.
    """

    name: str
    maker: fx.Node
    quantize: fx.Node
    dequantize: fx.Node
    step: float
    low: int
    high: int
    moved_from: fx.Node | None


def quantized_tensors(program: Program) -> list[QuantizedTensor]:
    """Every tensor that is rounded, in the order of the graph, by its own name, made unique; looked for once."""
    if program not in _FOUND:
        _FOUND[program] = list(_quantized_tensors(program.graphs[EVAL], program.signature))
    return _FOUND[program]


_FOUND: WeakKeyDictionary[Program, list[QuantizedTensor]] = WeakKeyDictionary()
"""By program: its graphs are never changed, a pass makes another program."""


def _quantized_tensors(graph: fx.Graph, signature: Signature) -> Iterable[QuantizedTensor]:
    found: dict[str, QuantizedTensor] = {}
    for node in filter(is_quantize, graph.nodes):
        maker = maker_of(node.args[0])
        name = numbered(maker_name(maker, graph, signature), found)
        step, zero, low, high = node.args[1:5]
        back = next(iter(node.users))
        found[name] = QuantizedTensor(name, maker, node, back, step, low - zero, high - zero, _moved_from(node))
    return found.values()


def _moved_from(quantize: fx.Node) -> fx.Node | None:
    source: fx.Node = quantize.args[0]  # type: ignore[assignment]
    first = next(filter(is_dequantize, source.all_input_nodes), None) if is_op(source) and moves_values(source) else None
    return first if first is not None and first.args[1] == quantize.args[1] else None


def maker_of(node: fx.Node) -> fx.Node:
    """The op or the input that a tensor comes from, through casts and the parts of a list."""
    while not is_op(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def maker_name(maker: fx.Node, graph: fx.Graph, signature: Signature) -> str:
    """What the op or the input is called."""
    if is_op(maker):
        return op_of(maker).name
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    return signature.tensors[inputs.index(maker)].name if maker in inputs else maker.name


def numbered(name: str, taken: Collection[str]) -> str:
    """``name``, or with the number of those like it behind it if it is taken."""
    plain = name
    while name in taken:
        name = f"{plain}_{sum(other.startswith(plain) for other in taken)}"
    return name


def quantize_nodes(program: Program) -> dict[str, fx.Node]:
    """The quantize nodes of the program, by the names of their tensors."""
    return {tensor.name: tensor.quantize for tensor in quantized_tensors(program)}


def rounded_name(tensor: str) -> str:
    """What a quantized tensor is called behind its dequantize node, in every artefact."""
    return f"{tensor}.rounded"
