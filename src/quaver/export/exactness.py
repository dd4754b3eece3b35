"""Where an engine gives every bit of the simulation, and where it may differ by the rounding of its float arithmetic.

Each quantized tensor is judged by itself, by the ops between it and the quantized tensors in front of it: products of
integers, and what only moves, compares or adds once, are simulated to the last bit. What has an order of summing or an
approximation of the engine's own is not: an exponential (sigmoid, swish, GELU, softmax), a norm, a layer that runs in float.
What is claimed here is what `benchmarks/engine_patterns.py` measures.
"""

import operator
import platform
from collections.abc import Callable
from typing import Any

from torch import fx

from quaver.export.names import quantize_nodes
from quaver.graph.nodes import is_dequantize, is_parameter, is_quantize, packet
from quaver.int8.lowering import BIASED, UNSHIFTED
from quaver.int8.rounded_once import is_rounded
from quaver.int8.xnnpack_lowering import weight_in_int8
from quaver.operators import ACTIVATIONS, keeps_range, type_of
from quaver.program import EVAL, Program
from quaver.targets import Target

_COMPARED = frozenset({"relu", "relu6", "hardtanh", "clamp"})
_AVERAGED = frozenset({"avg_pool2d", "adaptive_avg_pool2d", "mean"})
_ELEMENTWISE = frozenset({"add", "mul"})


def exact_tensors(program: Program, target: Target) -> dict[str, bool]:
    """For each quantized tensor of a program in its engine's form: is it claimed bit for bit, given those in front of it?"""
    exact = _exact_nodes(program, target)
    return {name: exact[node] for name, node in quantize_nodes(program).items()}


def exact_outputs(program: Program, target: Target) -> list[bool]:
    """The same for each output. A sum or an average that nothing rounds is not claimed: its last bit is the engine's own."""
    exact = _exact_nodes(program, target)
    end = next(node for node in program.graphs[EVAL].nodes if node.op == "output")
    return [
        not isinstance(value, fx.Node) or (exact[value] and not _ends_in_a_sum(value))
        for value in end.args[0]  # type: ignore[union-attr]
    ]


def _ends_in_a_sum(value: fx.Node) -> bool:
    """Whether there is a sum, a product or an average between a value and the quantized tensors in front of it."""
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop()
        if node.op != "call_function" or is_dequantize(node):
            continue
        if packet(node) in _ELEMENTWISE | _AVERAGED:
            return True
        waiting += [source for source in node.all_input_nodes if source not in seen]
        seen.update(node.all_input_nodes)
    return False


def rounds_elsewhere(program: Program, target: Target) -> bool:
    """Whether a program rounds where the engine does not: between a layer and the sum behind it, made for another engine."""
    sums = [node for node in program.graphs[EVAL].nodes if node.op == "call_function" and packet(node) == "add"]
    return target.fuses_add and any(
        all(map(is_dequantize, node.args[:2])) and any(map(_is_rounded_layer, node.args[:2])) for node in sums
    )


def _is_rounded_layer(back: fx.Node) -> bool:
    """Whether a dequantize node gives what a layer and its activation compute, to one reader."""
    source: Any = back
    while source.op == "call_function" and (is_dequantize(source) or is_quantize(source) or packet(source) in ACTIVATIONS):
        source = source.args[0]
    return source.op == "call_function" and packet(source) in BIASED and len(back.users) == 1


def is_measured_here() -> bool:
    """Whether the claims were measured on processors like this one: x86."""
    return platform.machine() in ("x86_64", "AMD64")


def _exact_nodes(program: Program, target: Target) -> dict[fx.Node, bool]:
    """For each node: does the engine have the simulation's bits, given those of the quantized tensors in front of it?"""
    claims, measured = _CLAIMS[target.name], is_measured_here()
    exact: dict[fx.Node, bool] = {}
    for node in program.graphs[EVAL].nodes:
        if node.op != "call_function" or is_dequantize(node) or is_parameter(node):
            exact[node] = True
        elif is_quantize(node):
            exact[node] = exact[node.args[0]] and (target.name != "openvino" or _rounded_as_simulated(node))
        elif packet(node).startswith(("sym_", "_assert")):
            exact[node] = exact[node.args[0]]
        else:
            exact[node] = measured and claims(node) and all(exact[source] for source in node.all_input_nodes)
    return exact


def _rounded_as_simulated(node: fx.Node) -> bool:
    """Whether it is known if OpenVINO adds 128 to a signed tensor before it rounds: that depends on who reads it."""
    _, _, zero, low = node.args[:4]
    readers = [reader for back in node.users for reader in back.users]
    known = BIASED.keys() | UNSHIFTED | {"cat"}
    is_signed = bool(low < zero)  # type: ignore[operator]
    return not is_signed or all(reader.op == "call_function" and packet(reader) in known for reader in readers)


def moves(node: fx.Node) -> bool:
    """Whether an op moves or selects values and computes none."""
    if node.target is operator.getitem or packet(node) in ("pad", "stack"):
        return True
    return keeps_range(node, type_of(node) or "")


def _on_integers(node: fx.Node) -> bool:
    """Whether an op's first operands, as many as it has of two, are quantized: a product's, both factors of it."""
    return all(is_dequantize(value) for value in node.args[:2] if isinstance(value, fx.Node))


def _of_two_tensors(node: fx.Node) -> bool:
    """Whether an op joins two tensors and nothing else: with a constant, engines fold it into what stands in front."""
    operands = node.args[:2]
    return not node.kwargs and all(isinstance(value, fx.Node) and not is_parameter(value) for value in operands)


def _openvino(node: fx.Node) -> bool:
    name = packet(node)
    if name in BIASED or name in _AVERAGED:
        return _on_integers(node)
    if name in ("hardswish", "hardsigmoid"):  # oneDNN's own order of operations is simulated behind a layer
        return packet(node.args[0]) in BIASED  # type: ignore[arg-type]
    if name == "add":
        return _of_two_tensors(node) and _added_as_simulated(node)
    if name in _ELEMENTWISE:
        return _of_two_tensors(node)
    return moves(node) or name in _COMPARED | {"leaky_relu"}


def _added_as_simulated(node: fx.Node) -> bool:
    """Whether OpenVINO adds quantized tensors, or one to what a layer gives: other sums it rounds now and then otherwise."""
    return all(is_dequantize(value) or _is_of_a_layer(value) for value in node.args[:2]) and any(
        map(is_dequantize, node.args[:2])
    )


def _is_of_a_layer(source: Any) -> bool:
    """Whether a node gives what a layer computes, with its batch norm and activation, to one reader."""
    while source.op == "call_function" and len(source.users) == 1 and packet(source) in ACTIVATIONS | {"batch_norm"}:
        source = source.args[0]
    return source.op == "call_function" and len(source.users) == 1 and packet(source) in BIASED


def _onnxruntime(node: fx.Node) -> bool:
    """It rounds a product or a sum of integers now and then otherwise at a tie: once in two million (`docs/results.md`)."""
    return moves(node) or packet(node) in _COMPARED


def _xnnpack(node: fx.Node) -> bool:
    name = packet(node)
    if name in BIASED:
        return weight_in_int8(node) is not None
    if name in _ELEMENTWISE or name in _AVERAGED:
        return _on_integers(node) and is_rounded(node)
    return moves(node) or name in _COMPARED | {"hardswish", "hardsigmoid", "leaky_relu"}


_CLAIMS: dict[str, Callable[[fx.Node], bool]] = {"openvino": _openvino, "onnx": _onnxruntime, "executorch": _xnnpack}
