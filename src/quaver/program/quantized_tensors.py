"""The quantized tensors of a frozen program: their names, in it and in every artefact made of it, and their grids."""

import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import fx

from quaver.graph.nodes import Facts, facts_in, ops_by_name
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
    maker_name: str
    quantize: fx.Node
    dequantize: fx.Node
    step: float
    low: int
    high: int
    moved_from: fx.Node | None

    @property
    def grid(self) -> tuple[float, int, int]:
        """What its integers mean: tensors of one grid have the same."""
        return self.step, self.low, self.high


def quantized_tensors(program: Program) -> list[QuantizedTensor]:
    """Every tensor that is rounded, in the order of the graph, by its own name, made unique; looked for once."""
    if program not in _CACHE:
        _CACHE[program] = list(_quantized_tensors(program.graphs[EVAL], program.signature))
    return _CACHE[program]


_CACHE: WeakKeyDictionary[Program, list[QuantizedTensor]] = WeakKeyDictionary()
"""By program: its graphs are never changed, a pass makes another program."""


def _quantized_tensors(graph: fx.Graph, signature: Signature) -> Iterable[QuantizedTensor]:
    tensors: dict[str, QuantizedTensor] = {}
    facts, makers = facts_in(graph), makers_in(graph, signature, ops_by_name(graph))
    rounding: list[Any] = [node for node, op in facts.items() if op.kind == "quantize"]
    for node in rounding:
        source, step, zero, low, high = node.args[:5]
        moved = _moved_from(node, facts) if source in makers else []
        maker = maker_of(source, makers)
        own_name = makers.get(maker, maker.name)
        name = numbered(own_name, tensors)
        tensors[name] = QuantizedTensor(
            name=name,
            maker=maker,
            maker_name=own_name,
            quantize=node,
            dequantize=next(iter(node.users)),
            step=step,
            low=low - zero,
            high=high - zero,
            moved_from=moved[0] if moved else None,
        )
    return tensors.values()


def _moved_from(quantize: fx.Node, facts: Facts) -> list[fx.Node]:
    """The dequantize nodes of the tensors on the same grid that an op only moved to where they are rounded again."""
    source: Any = quantize.args[0]
    read = source.all_input_nodes if facts[source].kind == "move" else []
    return [value for value in read if facts[value].kind == "dequantize" and value.args[1] == quantize.args[1]]


def on_one_grid(graph: fx.Graph) -> list[list[fx.Node]]:
    """The quantize nodes of a frozen graph, those with one step together: one quantizer's, or tensors always zero."""
    by_step: dict[Any, list[fx.Node]] = defaultdict(list)
    for node, op in facts_in(graph).items():
        if op.kind == "quantize":
            by_step[node.args[1]].append(node)
    return list(by_step.values())


def makers_in(graph: fx.Graph, signature: Signature, ops: Mapping[str, fx.Node]) -> dict[fx.Node, str]:
    """What the tensors of a graph come from, its inputs and its ops, by what they are called."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    names = {node: leaf.name for node, leaf in zip(inputs, signature.tensors, strict=True)}
    return names | {node: name for name, node in ops.items()}


def maker_of(node: fx.Node, makers: Collection[fx.Node]) -> fx.Node:
    """The op or the input that a tensor comes from, through casts and the parts of a list."""
    while node not in makers and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def tensor_name(node: fx.Node, makers: dict[fx.Node, str]) -> str:
    """``relu.output`` for what the op ``relu`` gives, ``split.output1`` for a part of it, an input's name for an input."""
    maker = maker_of(node, makers)
    name = makers.get(maker, maker.name)
    part = node.args[1] if node.target is operator.getitem else ""
    return f"{name}.output{part}" if maker in makers and maker.op != "placeholder" else name


def numbered(name: str, taken: Collection[str]) -> str:
    """``name``, or with the number of those like it behind it if it is taken."""
    plain = name
    while name in taken:
        name = f"{plain}_{sum(other.startswith(plain) for other in taken)}"
    return name


def rounded_again(program: Program) -> set[str]:
    """The tensors that their readers only move, and round to the same grid: a converter may drop the first rounding."""
    facts, tensors = facts_in(program.graphs[EVAL]), quantized_tensors(program)
    grids = {tensor.quantize: tensor.grid for tensor in tensors}

    def is_rounded_again(tensor: QuantizedTensor) -> bool:
        waiting = list(tensor.dequantize.users)
        while waiting:
            reader = waiting.pop()
            if not facts[reader].only_moves and grids.get(reader) != tensor.grid:
                return False
            waiting += [] if reader in grids else reader.users
        return True

    return {tensor.name for tensor in tensors if is_rounded_again(tensor)}


def rounded_name(tensor: str) -> str:
    """What a quantized tensor is called behind its dequantize node, in every artefact."""
    return f"{tensor}.rounded"
