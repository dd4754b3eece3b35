"""A frozen graph as ONNX Runtime computes it."""

from typing import Any

from torch import fx

from quaver.engines.onnxruntime import arithmetic
from quaver.graph.nodes import Facts, argument, is_dequantize
from quaver.int8 import requantize
from quaver.int8.kernels import divided_integers
from quaver.int8.requantize import Output
from quaver.int8.requantizing_lowering import RequantizingLowering


def zero_point(low: int) -> int:
    """What is added to integers that begin at ``low`` when they are stored."""
    return arithmetic.ZERO if low < 0 else 0


class ONNXRuntimeLowering(RequantizingLowering):
    """Convolutions, sums and products, each rounded once."""

    quantized = staticmethod(divided_integers)

    def computed(self, node: fx.Node, x: fx.Node, x_scale: Any, y: fx.Node, y_scale: Any, output: Output) -> fx.Node | None:
        """The integers of an op's result, where it has a kernel on integers."""
        op = self.facts[node]
        if op.is_layer and op.type != "conv2d_transpose":
            arguments, bias = tuple(node.args[3:]), argument(node, "bias")
            axes = (op.weight.channel_axis, op.weight.output_axis)
            return self.call(requantize.biased, node.target, x, y, bias, x_scale, y_scale, axes, arguments, output)
        whole = all(is_dequantize(value) for value in node.args[:2])
        if op.type == "elementwise_add" and whole and "alpha" not in node.kwargs:
            lows = (value.args[3] - value.args[2] for value in node.args[:2])  # type: ignore[union-attr,operator]
            zeros = tuple(map(zero_point, (*lows, output.low)))  # type: ignore[arg-type]
            return self.call(arithmetic.added, x, y, x_scale, y_scale, zeros, output)
        if op.type == "elementwise_mul" and whole:
            return self.call(requantize.multiplied, x, y, x_scale, y_scale, output)
        return None


lowering = ONNXRuntimeLowering


def exact_nodes(facts: Facts) -> set[fx.Node]:
    """Only where it moves or compares: it rounds a product or a sum otherwise at a tie, once in two million."""
    return {node for node, op in facts.items() if op.only_moves or op.kind in ("quantize", "clamp")}
