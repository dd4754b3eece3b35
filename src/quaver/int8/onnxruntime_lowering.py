"""Turn a frozen graph into one that computes as ONNX Runtime does."""

from typing import Any

from torch import fx

from quaver.int8 import onnxruntime, xnnpack
from quaver.int8.lowering import is_dequantize
from quaver.int8.rounded_once import BIASED, Output, RoundedOnce
from quaver.operators import argument, packet


def lower_for_onnxruntime(graph: fx.Graph) -> fx.Graph:
    """A copy of ``graph`` in ONNX Runtime's arithmetic."""
    return _ForONNXRuntime().run(graph)


def zero_of(node: Any) -> int:
    """The zero point with which a dequantized tensor, or the result of a quantized op, is stored."""
    low = node.args[3] - node.args[2]
    return onnxruntime.ZERO if low < 0 else 0


class _ForONNXRuntime(RoundedOnce):
    quantized = staticmethod(onnxruntime.quantized)

    def computed(self, node: fx.Node, x: fx.Node, x_scale: Any, y: fx.Node, y_scale: Any, output: Output) -> fx.Node | None:
        name = packet(node)
        if name in BIASED and name != "conv_transpose2d":
            arguments = tuple(node.args[3:])
            bias = argument(node, "bias")
            return self.call(xnnpack.biased, node.target, x, y, bias, x_scale, y_scale, (0, BIASED[name]), arguments, output)
        if name == "add" and all(is_dequantize(value) for value in node.args[:2]) and "alpha" not in node.kwargs:
            zeros = (*(zero_of(value) for value in node.args[:2]), onnxruntime.ZERO if output.low < 0 else 0)
            return self.call(onnxruntime.added, x, y, x_scale, y_scale, zeros, output)
        if name == "mul" and all(is_dequantize(value) for value in node.args[:2]):
            return self.call(onnxruntime.multiplied, x, y, x_scale, y_scale, output)
        return None
