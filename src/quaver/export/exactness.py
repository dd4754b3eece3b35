"""Where an engine gives every bit of the simulation, and where it may differ by the rounding of its float arithmetic.

Each quantized tensor is judged by itself, by the ops between it and the quantized tensors in front of it: products of
integers, and what only moves, compares or adds once, are simulated to the last bit, and so are some approximations of an
engine's own (OpenVINO's sigmoid). Others are not, nor is what has an order of summing: a softmax, a norm, a layer in float.
What is claimed here is what `benchmarks/engine_patterns.py` measures.
"""

import platform
from typing import Any, NamedTuple

from torch import fx

from quaver.engines import Engine
from quaver.graph.nodes import Facts, facts_in, parameters_in
from quaver.graph.patterns import on_integers
from quaver.program import EVAL, Program
from quaver.program.quantized_tensors import quantized_tensors


class Claims(NamedTuple):
    """What is claimed bit for bit, given the quantized tensors in front of it: which quantized tensors, and which outputs.

    A sum or an average that nothing rounds is not: its last bit is the engine's own. ``elsewhere``: the program rounds where
    the engine does not, so that nothing can be held to it.
    """

    tensors: dict[str, bool]
    outputs: list[bool]
    elsewhere: bool


def exactness(program: Program, engine: Engine) -> Claims:
    """What is claimed of a program in its engine's form."""
    graph = program.graphs[EVAL]
    facts = facts_in(graph)
    exact = _with_the_same_bits(facts, parameters_in(graph), engine)
    outputs: Any = graph.output_node().args[0]
    return Claims(
        {tensor.name: tensor.quantize in exact for tensor in quantized_tensors(program)},
        [value in exact and not _ends_in_a_sum(value, facts) for value in outputs if isinstance(value, fx.Node)],
        engine.fuses_add and not engine.rounds_as_written and _rounds_between_layer_and_sum(facts),
    )


def _ends_in_a_sum(value: fx.Node, facts: Facts) -> bool:
    """Whether there is a sum, a product or an average between a value and the quantized tensors in front of it."""
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop()
        op = facts[node]
        if node.op != "call_function" or op.kind == "dequantize":
            continue
        if op.type in ("elementwise_add", "elementwise_mul") or op.kind == "average":
            return True
        waiting += [source for source in node.all_input_nodes if source not in seen]
        seen.update(node.all_input_nodes)
    return False


def _rounds_between_layer_and_sum(facts: Facts) -> bool:
    """Whether a program does, as one made for another engine may."""
    sums = [node for node, op in facts.items() if op.type == "elementwise_add" and isinstance(node.args[1], fx.Node)]
    operands = [value for node in sums if on_integers(node, facts) for value in node.args[:2]]
    return any(_is_rounded_layer(value, facts) for value in operands)


def _is_rounded_layer(back: Any, facts: Facts) -> bool:
    """Whether a dequantize node gives what a layer and its activation compute, to one reader that has it rounded."""
    source = back
    while len(source.users) == 1 and (facts[source].fused or facts[source].kind in ("quantize", "dequantize")):
        source = source.args[0]
    return facts[source].is_layer and len(source.users) == 1


def is_measured_here() -> bool:
    """Whether the claims were measured on processors like this one: x86."""
    return platform.machine() in ("x86_64", "AMD64")


def _with_the_same_bits(facts: Facts, parameters: set[fx.Node], engine: Engine) -> set[fx.Node]:
    """The nodes where the engine has the simulation's bits, given those of the quantized tensors in front of them."""
    measured, exact_by_themselves = is_measured_here(), engine.exact_nodes(facts)
    exact: set[fx.Node] = set()
    for node, op in facts.items():
        given = node.op != "call_function" or op.kind == "dequantize" or node in parameters
        by_itself = op.kind == "shape" or (node in exact_by_themselves and (measured or op.kind == "quantize"))
        if given or (by_itself and exact.issuperset(node.all_input_nodes)):
            exact.add(node)
    return exact
