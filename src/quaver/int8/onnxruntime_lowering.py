"""Turn a frozen graph into one that computes as ONNX Runtime does."""

from typing import Any

from torch import fx

from quaver.graph.nodes import argument, is_dequantize, packet
from quaver.int8 import one_factor, onnxruntime
from quaver.int8.lowering import BIASED
from quaver.int8.one_factor import Output
from quaver.int8.rounded_once import RoundedOnce


def lower_for_onnxruntime(graph: fx.Graph) -> fx.Graph:
    """A copy of ``graph`` in ONNX Runtime's arithmetic."""
    return _ForONNXRuntime().run(graph)


def zero_point(low: int) -> int:
    """What is added to integers that begin at ``low`` when they are stored."""
    return onnxruntime.ZERO if low < 0 else 0


class _ForONNXRuntime(RoundedOnce):
    quantized = staticmethod(onnxruntime.quantized)

    def computed(self, node: fx.Node, x: fx.Node, x_scale: Any, y: fx.Node, y_scale: Any, output: Output) -> fx.Node | None:
        name = packet(node)
        if name in BIASED and name != "conv_transpose2d":
            arguments, bias = tuple(node.args[3:]), argument(node, "bias")
            return self.call(
                one_factor.biased, node.target, x, y, bias, x_scale, y_scale, (0, BIASED[name]), arguments, output
            )
        if name == "add" and all(is_dequantize(value) for value in node.args[:2]) and "alpha" not in node.kwargs:
            lows = (value.args[3] - value.args[2] for value in node.args[:2])  # type: ignore[union-attr,operator]
            zeros = tuple(map(zero_point, (*lows, output.low)))  # type: ignore[arg-type]
            return self.call(onnxruntime.added, x, y, x_scale, y_scale, zeros, output)
        if name == "mul" and all(is_dequantize(value) for value in node.args[:2]):
            return self.call(one_factor.multiplied, x, y, x_scale, y_scale, output)
        return None
