"""Turn a mobile program's graph into one that computes as XNNPACK does: from integers to integers, rounded once.

What XNNPACK runs in float (a hard swish, a bilinear resize) reads the numbers that the integers stand for, as written.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from quaver.int8 import xnnpack
from quaver.int8.kernels import fixed_integers, stored_integers
from quaver.int8.lowering import is_dequantize, is_quantize
from quaver.operators import argument, is_stored, packet
from quaver.quantizers.arithmetic import dequantize

aten = torch.ops.aten

_BIASED = {"conv1d": 1, "conv2d": 1, "conv_transpose2d": 1, "linear": -1}  # the output's channel axis
_MATRIX_PRODUCTS = frozenset({"matmul", "mm"})
_CLAMPS = frozenset({"relu", "relu6", "hardtanh", "clamp"})


def lower_for_xnnpack(graph: fx.Graph) -> fx.Graph:
    """A copy of ``graph`` in XNNPACK's arithmetic."""
    return _Lowering().run(graph)


def limits_of(node: fx.Node) -> tuple[float, float] | None:
    """Between which values an op clamps, if that is what it does."""
    if node.op != "call_function" or packet(node) not in _CLAMPS:
        return None
    if packet(node) in ("relu", "relu6"):
        return 0.0, math.inf if packet(node) == "relu" else 6.0
    names = ("min_val", "max_val") if packet(node) == "hardtanh" else ("min", "max")
    least, most = (argument(node, name) for name in names)
    if isinstance(least, fx.Node) or isinstance(most, fx.Node):
        return None  # tensors, known only when it runs
    return float(-math.inf if least is None else least), float(math.inf if most is None else most)


def is_rounded(node: fx.Node) -> bool:
    """Whether an op's result is quantized, behind a clamp at most, and not read otherwise."""
    if len(node.users) != 1:
        return False
    (reader,) = node.users
    if limits_of(reader) is not None and len(reader.users) == 1:
        (reader,) = reader.users
    return is_quantize(reader)


def weight_in_int8(node: fx.Node) -> fx.Node | None:
    """The dequantized weight of an op that XNNPACK runs in int8; none for an op that it runs in float."""
    if node.op != "call_function" or packet(node) not in _MATRIX_PRODUCTS | _BIASED.keys() or not is_rounded(node):
        return None
    x, weight = node.args[:2]
    if not is_dequantize(x) or not is_dequantize(weight) or not is_stored(weight.args[0]):  # type: ignore[union-attr]
        return None
    if packet(node) == "conv_transpose2d" and argument(node, "groups") != 1:
        return None  # with a step per channel it takes no groups
    return weight  # type: ignore[return-value]


def pool_of(node: fx.Node) -> tuple[list[int], list[int], list[int], int] | None:
    """Kernel, stride, padding and divisor of an average pool that is a convolution with equal weights."""
    kernel = two(argument(node, "kernel_size"))
    stride, padding = two(argument(node, "stride") or kernel), two(argument(node, "padding"))
    if argument(node, "ceil_mode") or (any(padding) and not argument(node, "count_include_pad")):
        return None  # it divides by another number at the border
    return kernel, stride, padding, argument(node, "divisor_override") or math.prod(kernel)


def two(sizes: Any) -> list[int]:
    """Height and width, which may be given as one number."""
    values = [sizes] if isinstance(sizes, int) else list(sizes)
    return values * 2 if len(values) == 1 else values


@dataclass
class _Lowering:
    """One walk over a graph, copying node by node."""

    result: fx.Graph = field(default_factory=fx.Graph)
    copies: dict[fx.Node, fx.Node] = field(default_factory=dict)
    integers: dict[fx.Node, tuple[fx.Node, Any]] = field(default_factory=dict)  # of a dequantize: integers and step
    spare: list[fx.Node] = field(default_factory=list)  # computed in vain if its rounded result is computed in one step

    def run(self, graph: fx.Graph) -> fx.Graph:
        for node in graph.nodes:
            self.copies[node] = self.dequantized(node) if is_dequantize(node) else self.copy(node)
            if node.op == "call_function" and not node.is_impure():
                self.spare.append(self.copies[node])
        for node in reversed(self.spare):
            if not node.users:
                self.result.erase_node(node)
        return self.result

    def copy(self, node: fx.Node) -> fx.Node:
        twin = self.result.node_copy(node, lambda old: self.copies[old])
        twin.meta = dict(node.meta)
        return twin

    def call(self, function: Any, *args: Any) -> fx.Node:
        return self.result.call_function(function, fx.map_arg(args, lambda old: self.copies.get(old, old)))

    def dequantized(self, node: fx.Node) -> fx.Node:
        source, scale, zero_point = node.args[:3]
        assert isinstance(source, fx.Node)
        if not is_quantize(source):  # a weight
            self.integers[node] = (self.call(stored_integers, source), scale)
            return self.copy(node)
        low, high = (bound - zero_point for bound in source.args[3:5])  # type: ignore[operator]
        output = xnnpack.Output(scale, low, high)  # type: ignore[arg-type]
        whole = self.rounded(source, output) or self.call(fixed_integers, source.args[0], *output)
        whole.meta["quantizes"] = source.name
        self.integers[node] = (whole, scale)
        return self.call(dequantize, whole, scale)

    def rounded(self, reader: fx.Node, output: xnnpack.Output) -> fx.Node | None:
        """The integers that ``reader`` quantizes to, where XNNPACK computes them in one step with the op in front."""
        node: Any = reader.args[0]
        limits = limits_of(node)
        if limits is not None:
            ends = (int(fixed_integers(torch.tensor(limit), *output)) for limit in limits)
            output, node = xnnpack.Output(output.scale, *ends), node.args[0]
        if node.op != "call_function" or not is_rounded(node):
            return None
        operands = [value for value in node.args[:2] if isinstance(value, fx.Node)]
        if not operands or any(value not in self.integers for value in operands):
            return None
        (x, x_scale), (y, y_scale) = self.integers[operands[0]], self.integers[operands[-1]]
        return self.computed(node, x, x_scale, y, y_scale, output)

    def computed(
        self, node: fx.Node, x: fx.Node, x_scale: Any, y: fx.Node, y_scale: Any, output: xnnpack.Output
    ) -> fx.Node | None:
        name = packet(node)
        if weight_in_int8(node) is not None and name in _BIASED:
            axes, arguments = (int(name == "conv_transpose2d"), _BIASED[name]), tuple(node.args[3:])
            bias = argument(node, "bias")
            return self.call(xnnpack.biased, node.target, x, y, bias, x_scale, y_scale, axes, arguments, output)
        if weight_in_int8(node) is not None:
            weight = self.call(torch.t, y)
            return self.call(xnnpack.biased, aten.linear.default, x, weight, None, x_scale, y_scale, (0, -1), (), output)
        if name in ("add", "sub", "mul") and isinstance(node.args[1], fx.Node) and "alpha" not in node.kwargs:
            function = xnnpack.multiplied if name == "mul" else xnnpack.added
            return self.call(function, x, y, x_scale, -y_scale if name == "sub" else y_scale, output)
        if name == "avg_pool2d" and (pool := pool_of(node)) is not None:
            return self.call(xnnpack.average, x, x_scale, *pool, output)
        if name == "adaptive_avg_pool2d":
            return self.call(xnnpack.adaptive_average, x, x_scale, two(node.args[1]), output)
        if name == "mean" and argument(node, "dim") is not None:
            return self.call(xnnpack.mean, x, x_scale, list(argument(node, "dim")), argument(node, "keepdim"), output)
        return None
