"""Where OpenVINO gives the bits of its simulation."""

from typing import Any

from torch import fx

from quaver.engines.openvino.lowering import UNSHIFTED
from quaver.graph.nodes import is_dequantize, is_parameter, is_quantize, packet
from quaver.int8.patterns import AVERAGES, BIASED, ELEMENTWISE, compares, moves, on_integers
from quaver.operators import ACTIVATIONS


def computes_exactly(node: fx.Node) -> bool:
    """Given the bits of its inputs: measured by `benchmarks/engine_patterns.py`."""
    if is_quantize(node):
        return _rounded_as_simulated(node)
    name = packet(node)
    if name in BIASED or name in AVERAGES:
        return on_integers(node)
    if name in ("hardswish", "hardsigmoid"):  # oneDNN's own order of operations is simulated behind a layer
        return packet(node.args[0]) in BIASED  # type: ignore[arg-type]
    if name == "add":
        return _of_two_tensors(node) and _added_as_simulated(node)
    if name in ELEMENTWISE:
        return _of_two_tensors(node)
    return moves(node) or compares(node) or name == "leaky_relu"


def _rounded_as_simulated(node: fx.Node) -> bool:
    """Whether it is known if OpenVINO adds 128 to a signed tensor before it rounds: that depends on who reads it."""
    _, _, zero, low = node.args[:4]
    readers = [reader for back in node.users for reader in back.users]
    known = BIASED.keys() | UNSHIFTED | {"cat"}
    is_signed = bool(low < zero)  # type: ignore[operator]
    return not is_signed or all(reader.op == "call_function" and packet(reader) in known for reader in readers)


def _of_two_tensors(node: fx.Node) -> bool:
    """Whether an op joins two tensors and nothing else: with a constant, engines fold it into what stands in front."""
    operands = node.args[:2]
    return not node.kwargs and all(isinstance(value, fx.Node) and not is_parameter(value) for value in operands)


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
