"""A mobile program's graph as XNNPACK computes it."""

import math
from typing import Any

import torch
from torch import fx

from quaver.graph.nodes import Facts, argument, facts, is_dequantize, is_quantize, is_stored, packet
from quaver.graph.patterns import is_rounded, on_integers, pool_window, two
from quaver.int8 import requantize
from quaver.int8.kernels import fixed_integers
from quaver.int8.requantize import Output
from quaver.int8.requantizing_lowering import RequantizingLowering
from quaver.xnnpack import arithmetic
from quaver.xnnpack.arithmetic import Zeros

aten = torch.ops.aten


def weight_in_int8(node: fx.Node) -> fx.Node | None:
    """The dequantized weight of an op that XNNPACK runs in int8; none for an op that it runs in float."""
    if not facts(node).has_weight or not is_rounded(node):
        return None
    x, weight = node.args[:2]
    if not is_dequantize(x) or not is_dequantize(weight) or not is_stored(weight.args[0]):  # type: ignore[union-attr]
        return None
    if packet(node) == "conv_transpose2d" and argument(node, "groups") != 1:
        return None  # with a step per channel it takes no groups
    return weight  # type: ignore[return-value]


def pool_of(node: fx.Node) -> tuple[list[int], list[int], list[int], int] | None:
    """Kernel, stride, padding and divisor of an average pool that is a convolution with equal weights."""
    kernel, stride, padding = pool_window(node)
    if argument(node, "ceil_mode") or (any(padding) and not argument(node, "count_include_pad")):
        return None  # it divides by another number at the border
    return kernel, stride, padding, argument(node, "divisor_override") or math.prod(kernel)


def zeros_of(node: fx.Node) -> Zeros:
    """The zero points that the input and the rounded output of an op are stored with."""
    (reader,) = node.users
    quantize = reader if is_quantize(reader) else next(iter(reader.users))  # behind a clamp
    return stored_zero(node.args[0]), stored_zero(quantize)  # type: ignore[arg-type]


def stored_zero(node: fx.Node) -> int:
    """The zero point of a quantize or a dequantize node on XNNPACK's grid, which unsigned integers are moved to."""
    zero_point: int = node.args[2]  # type: ignore[assignment]
    return zero_point - 128 if node.args[-1] is torch.uint8 else zero_point


class XNNPACKLowering(RequantizingLowering):
    """Convolutions, sums and products, each rounded once, by the kernels named here."""

    quantized = staticmethod(fixed_integers)
    layer = staticmethod(requantize.biased)
    multiplied = staticmethod(requantize.multiplied)
    added = staticmethod(arithmetic.added)
    average = staticmethod(arithmetic.average)
    adaptive_average = staticmethod(arithmetic.adaptive_average)
    mean = staticmethod(arithmetic.mean)

    def computed(self, node: fx.Node, x: fx.Node, x_scale: Any, y: fx.Node, y_scale: Any, output: Output) -> fx.Node | None:
        """The integers of an op's result, where it has a kernel on integers."""
        name, op = packet(node), facts(node)
        if weight_in_int8(node) is not None and op.is_layer:
            axes, arguments = (op.weight.channel_axis, op.weight.output_axis), tuple(node.args[3:])
            return self.call(
                self.layer, node.target, x, y, argument(node, "bias"), x_scale, y_scale, axes, arguments, output
            )
        if weight_in_int8(node) is not None:
            weight = self.call(torch.t, y)
            return self.call(self.layer, aten.linear.default, x, weight, None, x_scale, y_scale, (0, -1), (), output)
        if name in ("add", "sub", "mul") and isinstance(node.args[1], fx.Node) and "alpha" not in node.kwargs:
            function = self.multiplied if name == "mul" else self.added
            return self.call(function, x, y, x_scale, -y_scale if name == "sub" else y_scale, output)
        if name == "avg_pool2d" and (pool := pool_of(node)) is not None:
            return self.call(self.average, x, x_scale, *pool, output)
        if name == "adaptive_avg_pool2d":
            return self.call(self.adaptive_average, x, x_scale, two(node.args[1]), zeros_of(node), output)
        if name == "mean" and argument(node, "dim") is not None:
            dims, keepdim = list(argument(node, "dim")), argument(node, "keepdim")
            return self.call(self.mean, x, x_scale, dims, keepdim, zeros_of(node), output)
        return None


def exact_nodes(facts: Facts) -> set[fx.Node]:
    """Those where XNNPACK gives the simulation's bits, given those of their inputs."""
    return {node for node in facts if _is_exact(node, facts)}


def _is_exact(node: fx.Node, facts: Facts) -> bool:
    op = facts[node]
    if op.is_layer:
        return weight_in_int8(node) is not None
    if op.type in ("elementwise_add", "elementwise_mul") or op.kind == "average":
        return on_integers(node, facts) and is_rounded(node)
    exact_activations = ("hard_swish", "hard_sigmoid", "leaky_relu")
    return op.only_moves or op.kind in ("quantize", "clamp") or op.type in exact_activations
