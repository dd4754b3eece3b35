"""Lowering for engines that go from integers to integers: every op's result is rounded, and rounded once.

What such an engine runs in float (a hard swish, a bilinear resize) reads the numbers that the integers stand for, as
written. Which ops it computes in one step, and how, is each engine's own.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from quaver.graph.nodes import clamp_bounds, packet
from quaver.graph.patterns import is_rounded
from quaver.graph.rewriter import Lowering
from quaver.int8.kernels import first_largest, stored_integers
from quaver.int8.requantize import Output
from quaver.quantizers.arithmetic import dequantize


@dataclass
class RequantizingLowering(Lowering):
    """A lowering; what is computed in vain, because its rounded result is computed in one step, is spare."""

    @staticmethod
    def quantized(x: Tensor, scale: float, low: int, high: int) -> Tensor:
        """Integers of what was computed in float."""
        raise NotImplementedError

    def computed(self, node: fx.Node, x: fx.Node, x_scale: Any, y: fx.Node, y_scale: Any, output: Output) -> fx.Node | None:
        """The integers of an op's result, where the engine comes to them in one step; ``y`` is its last operand."""
        raise NotImplementedError

    def lowered(self, node: fx.Node) -> fx.Node:
        """What integers stand for; whatever else as it is, but for what files say otherwise than PyTorch."""
        if packet(node) == "topk":
            return self.spared(self.call(first_largest, *node.args, **node.kwargs))
        twin = self.dequantized(node) if self.facts[node].kind == "dequantize" else self.copy(node)
        return twin if node.op == "call_module" or node.is_impure() else self.spared(twin)

    def dequantized(self, node: fx.Node) -> fx.Node:
        """What integers stand for; how the engine comes to them is decided here."""
        source, scale, zero_point = node.args[:3]
        assert isinstance(source, fx.Node)
        if self.facts[source].kind != "quantize":  # a weight
            self.integers[node] = (self.call(stored_integers, source), scale)
            return self.copy(node)
        low, high = (bound - zero_point for bound in source.args[3:5])  # type: ignore[operator]
        output = Output(scale, low, high)  # type: ignore[arg-type]
        whole = self.rounded(source, output) or self.call(type(self).quantized, source.args[0], *output)
        self.integers[node] = (whole, scale)
        return self.call(dequantize, whole, scale)

    def rounded(self, reader: fx.Node, output: Output) -> fx.Node | None:
        """The integers that ``reader`` quantizes to, where the engine computes them in one step with the op in front."""
        node: Any = reader.args[0]
        limits = clamp_bounds(node)
        if limits is not None:
            bounds = (int(type(self).quantized(torch.tensor(limit), *output)) for limit in limits)
            output, node = Output(output.scale, *bounds), node.args[0]
        if node.op != "call_function" or not is_rounded(node):
            return None
        operands = [value for value in node.args[:2] if isinstance(value, fx.Node)]
        if not operands or any(value not in self.integers for value in operands):
            return None
        (x, x_scale), (y, y_scale) = self.integers[operands[0]], self.integers[operands[-1]]
        return self.computed(node, x, x_scale, y, y_scale, output)
