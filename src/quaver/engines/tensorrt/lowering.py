"""A frozen graph in the arithmetic of quantize and dequantize pairs, as ONNX defines it and TensorRT documents it.

Integers are ``round(x / scale)``, ties to even, and stand for ``integer · scale``. What is between two pairs is float32, in
the order in which it is written. Only sums of products are taken on the integers, whose order cannot matter: TensorRT adds
them in 32-bit integers, ONNX Runtime, which executes the file here, in float32.
"""

from typing import Any

from torch import fx

from quaver.graph.nodes import Facts, argument
from quaver.int8 import kernels
from quaver.int8.requantize import Output
from quaver.int8.requantizing_lowering import RequantizingLowering


class PairsLowering(RequantizingLowering):
    """Layers and matrix products on integers; nothing is rounded in one step with another op."""

    quantized = staticmethod(kernels.divided_integers)

    def rounded(self, reader: fx.Node, output: Output) -> None:
        """A pair rounds what it reads."""

    def lowered(self, node: fx.Node) -> fx.Node:
        """Layers and products on integers; whatever else as it is."""
        op, operands = self.facts[node], list(node.args[:2])
        if not (op.is_layer or op.kind == "matrix product") or any(value not in self.integers for value in operands):
            return super().lowered(node)
        (x, x_scale), (y, y_scale) = (self.integers[value] for value in operands)  # type: ignore[index]
        if not op.is_layer:
            return self.call(kernels.matrix_product, node.target, x, y, x_scale, y_scale)
        further: tuple[Any, ...] = (argument(node, "bias"), op.weight.output_axis, tuple(node.args[3:]))
        return self.call(kernels.rescaled, node.target, x, y, x_scale, y_scale, *further)


lowering = PairsLowering


def exact_nodes(facts: Facts) -> set[fx.Node]:
    """Where one float32 operation, or none, is left to compute: sums of products are added in another order there."""
    single_operation = ("elementwise_add", "elementwise_mul", "leaky_relu")
    return {
        node
        for node, op in facts.items()
        if op.only_moves or op.kind in ("quantize", "clamp") or (op.type in single_operation and "alpha" not in node.kwargs)
    }
