"""Where an engine gives every bit of the simulation, and where it may differ by the rounding of its float arithmetic.

Each quantized tensor is judged by itself, by the ops between it and the quantized tensors in front of it: products of
integers, and what only moves, compares or adds once, are simulated to the last bit. What has an order of summing or an
approximation of the engine's own is not: an exponential (sigmoid, swish, GELU, softmax), a norm, a layer that runs in float.
What is claimed here is what `benchmarks/engine_patterns.py` measures.
"""

import platform
from typing import Any

from torch import fx

from quaver.engines import Engine
from quaver.graph.nodes import is_dequantize, is_parameter, is_quantize, packet
from quaver.operators import facts
from quaver.program import EVAL, Program
from quaver.program.quantized_tensors import quantize_nodes


def exactness(program: Program, engine: Engine) -> tuple[dict[str, bool], list[bool]]:
    """For each quantized tensor of a program in its engine's form, and for each output: is it claimed bit for bit, given
    the quantized tensors in front of it? A sum or an average that nothing rounds is not: its last bit is the engine's own.
    """
    exact = _exact_nodes(program, engine)
    (outputs,) = next(node for node in program.graphs[EVAL].nodes if node.op == "output").args
    return {name: exact[node] for name, node in quantize_nodes(program).items()}, [
        not isinstance(value, fx.Node) or (exact[value] and not _ends_in_a_sum(value))
        for value in outputs  # type: ignore[union-attr]
    ]


def _ends_in_a_sum(value: fx.Node) -> bool:
    """Whether there is a sum, a product or an average between a value and the quantized tensors in front of it."""
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop()
        if node.op != "call_function" or is_dequantize(node):
            continue
        if packet(node) in ("add", "mul") or facts(node).kind == "average":
            return True
        waiting += [source for source in node.all_input_nodes if source not in seen]
        seen.update(node.all_input_nodes)
    return False


def rounds_elsewhere(program: Program, engine: Engine) -> bool:
    """Whether a program rounds where the engine does not: between a layer and the sum behind it, made for another engine."""
    sums = [node for node in program.graphs[EVAL].nodes if node.op == "call_function" and packet(node) == "add"]
    return engine.fuses_add and any(
        all(map(is_dequantize, node.args[:2])) and any(map(_is_rounded_layer, node.args[:2])) for node in sums
    )


def _is_rounded_layer(back: fx.Node) -> bool:
    """Whether a dequantize node gives what a layer and its activation compute, to one reader."""
    source: Any = back
    while is_dequantize(source) or is_quantize(source) or facts(source).fused:
        source = source.args[0]
    return facts(source).is_layer and len(back.users) == 1


def is_measured_here() -> bool:
    """Whether the claims were measured on processors like this one: x86."""
    return platform.machine() in ("x86_64", "AMD64")


def _exact_nodes(program: Program, engine: Engine) -> dict[fx.Node, bool]:
    """For each node: does the engine have the simulation's bits, given those of the quantized tensors in front of it?"""
    measured = is_measured_here()
    exact: dict[fx.Node, bool] = {}
    for node in program.graphs[EVAL].nodes:
        if node.op != "call_function" or is_dequantize(node) or is_parameter(node):
            exact[node] = True
        elif is_quantize(node):
            exact[node] = exact[node.args[0]] and engine.computes_exactly(node)
        elif packet(node).startswith(("sym_", "_assert")):
            exact[node] = exact[node.args[0]]
        else:
            exact[node] = (
                measured and engine.computes_exactly(node) and all(exact[source] for source in node.all_input_nodes)
            )
    return exact
