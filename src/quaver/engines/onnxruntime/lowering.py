"""A frozen graph as ONNX Runtime computes it."""

from typing import Any

from torch import fx

from quaver.engines.onnxruntime import arithmetic
from quaver.graph.nodes import argument, is_dequantize, is_quantize, packet
from quaver.int8 import requantize
from quaver.int8.patterns import moves
from quaver.int8.requantize import Output
from quaver.int8.requantizing import RequantizingLowering
from quaver.operators import facts


def zero_point(low: int) -> int:
    """What is added to integers that begin at ``low`` when they are stored."""
    return arithmetic.ZERO if low < 0 else 0


class ONNXRuntimeLowering(RequantizingLowering):
    """Convolutions, sums and products, each rounded once."""

    quantized = staticmethod(arithmetic.quantized)

    def computed(self, node: fx.Node, x: fx.Node, x_scale: Any, y: fx.Node, y_scale: Any, output: Output) -> fx.Node | None:
        """The integers of an op's result, where it has a kernel on integers."""
        name, op = packet(node), facts(node)
        if op.is_layer and name != "conv_transpose2d":
            arguments, bias = tuple(node.args[3:]), argument(node, "bias")
            axes = (op.weight.channel_axis, op.weight.output_axis)
            return self.call(requantize.biased, node.target, x, y, bias, x_scale, y_scale, axes, arguments, output)
        if name == "add" and all(is_dequantize(value) for value in node.args[:2]) and "alpha" not in node.kwargs:
            lows = (value.args[3] - value.args[2] for value in node.args[:2])  # type: ignore[union-attr,operator]
            zeros = tuple(map(zero_point, (*lows, output.low)))  # type: ignore[arg-type]
            return self.call(arithmetic.added, x, y, x_scale, y_scale, zeros, output)
        if name == "mul" and all(is_dequantize(value) for value in node.args[:2]):
            return self.call(requantize.multiplied, x, y, x_scale, y_scale, output)
        return None


lowering = ONNXRuntimeLowering


def computes_exactly(node: fx.Node) -> bool:
    """Only where it moves or compares: it rounds a product or a sum otherwise at a tie, once in two million."""
    return is_quantize(node) or moves(node) or facts(node).kind == "clamp"
