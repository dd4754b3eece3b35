"""An ONNX model that takes a camera's bytes: what stands in front of the program's own input.

Bytes are prepared row by row, all channels of a row in one constant: engines then have long rows to compute on, and images
with channels last are already in the order in which they convolve.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from quaver.image_input import BYTES, ImageInput
from quaver.image_scaling import neighbours
from quaver.onnx.editing import array_of, constant, made_by, only_reader, operand
from quaver.program import Program
from quaver.program.image_bytes import ByteAffine, affine_for

Pair = tuple[ir.Node, ir.Node]
FLOAT = ir.DataType.FLOAT


def take_bytes(model: ir.Model, program: Program, image: ImageInput | None) -> None:
    """Let the model take ``image`` in place of the float tensor that ``program`` takes; without one it stays as it is.

    Every byte becomes the program's integer: by a product and a sum where those are safe, and else by a table.
    """
    if image is not None:
        _Front(model.graph, image, affine_for(program, image)).put()
        model.graph.sort()


class _Front:
    """What is put in front of a graph's input; its nodes are to be sorted."""

    def __init__(self, graph: ir.Graph, image: ImageInput, affine: ByteAffine | None) -> None:
        self.graph, self.image, self.affine = graph, image, affine
        (self.floats,) = graph.inputs
        assert self.floats.shape is not None
        self.batch, *sizes = self.floats.shape
        self.sizes = [int(size) for size in sizes if isinstance(size, int)]
        self.name = str(self.floats.name)
        self.is_last = image.layout == "NHWC"

    def put(self) -> None:
        """Give the graph another input, and let everyone who read the old one read what is made of it."""
        images = self.scaled(self.taken())
        readers = list(self.floats.uses())
        pairs = [pair for reader, _ in readers if (pair := _rounding_pair(reader)) is not None]
        if self.affine is None or len(pairs) < len(readers):
            values = self.planes(self.prepared(self.rows(self.in_order(images))), "values")
            for reader, place in readers:
                reader.replace_input_with(place, values)
            return
        weights = [_own_weight(reader) for _, back in pairs for reader, _ in back.outputs[0].uses()]
        swaps = self.image.color == "BGR" and all(weights)
        rows = self.prepared(self.rows(images if swaps else self.in_order(images)), backwards=swaps)
        for rounding, back in pairs:
            rounding.replace_input_with(0, rows)
            self.turn(back, is_backwards=swaps)
        for weight in filter(None, weights if swaps else []):
            self.swap(weight)

    def taken(self) -> ir.Value:
        """The new input, under the old one's name; what asked the old one for the size of its batch asks it."""
        images = ir.val(self.name)
        images.type = ir.TensorType(ir.DataType.UINT8)
        images.shape = ir.Shape(self.image.shape((self.batch, *self.sizes)))
        self.floats.name = f"{self.name}.float"
        self.graph.inputs[0] = images
        for reader, place in list(self.floats.uses()):
            if reader.op_type == "Shape":  # all other sizes are fixed
                reader.replace_input_with(place, images)
        return images

    def scaled(self, images: ir.Value) -> ir.Value:
        """The images in the program's size: `quaver.image_scaling.scaled`, in the same products and sums."""
        if self.image.size is None:
            return images
        values, first_axis = images, 1 if self.is_last else 2
        for axis, source, result in zip((first_axis, first_axis + 1), self.image.size, self.sizes[1:], strict=True):
            near, title = neighbours(source, result), "rows" if axis == first_axis else "columns"
            places = {"first": near.first, "second": near.second}
            first, second = (
                self.node("Cast", self.node("Gather", values, self.constant(f"{title}.{name}", place), axis=axis), to=FLOAT)
                for name, place in places.items()
            )
            share = near.share.reshape(-1, *[1] * (3 - axis))
            moved = self.node("Mul", self.node("Sub", second, first), self.constant(f"{title}.share", share))
            values = self.node("Add", first, moved)
        return self.node("Cast", self.node("Round", values), to=ir.DataType.UINT8)

    def in_order(self, images: ir.Value) -> ir.Value:
        """The images with their channels in the program's order."""
        if self.image.color == "RGB":
            return images
        return self.node("Gather", images, self.constant("order", np.arange(3)[::-1].copy()), axis=self.image.axis)

    def swap(self, weight: ir.Node) -> None:
        """Let a convolution read blue first: its sums of integers stay what they are."""
        weight.replace_input_with(0, self.constant("weight", array_of(weight.inputs[0])[:, ::-1].copy()))

    def rows(self, images: ir.Value) -> ir.Value:
        """Images x rows x what is in a row; with channels first, each channel is a row."""
        channels, height, width = self.sizes
        across = (height, width * channels) if self.is_last else (channels, height * width)
        return self.node("Reshape", images, self.constant("rows", np.array([0, *across])))

    def prepared(self, rows: ir.Value, *, backwards: bool = False) -> ir.Value:
        """What the bytes of rows stand for; ``backwards`` where the channels are."""
        if self.affine is not None:
            floats = self.node("Cast", rows, to=FLOAT)
            product = self.node("Mul", floats, self.along("factor", self.affine.factor, backwards))
            return self.node("Add", product, self.along("shift", self.affine.shift, backwards))
        numbers = self.node("Cast", rows, to=ir.DataType.INT32)
        first = np.arange(self.image.channels, dtype=np.int32) * BYTES
        entries = self.node("Add", numbers, self.along("first", first, backwards))
        return self.node("Gather", self.constant("table", self.image.table().reshape(-1)), entries, axis=0)

    def planes(self, rows: ir.Value, name: str) -> ir.Value:
        """Rows as the program takes images: NCHW."""
        channels, height, width = self.sizes
        if not self.is_last:
            return self.node("Reshape", rows, self.constant("planes", np.array([0, channels, height, width])), name=name)
        pixels = self.node("Reshape", rows, self.constant("pixels", np.array([0, height, width, channels])))
        return self.node("Transpose", pixels, name=name, perm=[0, 3, 1, 2])

    def turn(self, back: ir.Node, *, is_backwards: bool) -> None:
        """Bring rounded rows into the program's order, under the name that it has for them; without it where it has none."""
        rounded = back.outputs[0]
        readers, name = list(rounded.uses()), str(rounded.name)
        operand(back).shape = rounded.shape = None
        rounded.name = back.name = f"{name}.rows"
        planes = self.planes(rounded, f"{name}.backwards" if is_backwards else name)
        for reader, place in readers:
            reader.replace_input_with(place, planes)

    def along(self, name: str, values: NDArray[Any], backwards: bool) -> ir.Value:
        """A constant with a value per channel, as rows have them."""
        values = values[::-1] if backwards else values
        return self.constant(name, np.tile(values, self.sizes[2]) if self.is_last else values[:, None].copy())

    def constant(self, name: str, values: NDArray[Any]) -> ir.Value:
        return constant(self.graph, f"{self.name}.{name}", values)

    def node(self, op_type: str, *inputs: ir.Value, name: str = "", **attributes: Any) -> ir.Value:
        title = name or f"{self.name}.{op_type.lower()}.{len(self.graph)}"
        node = ir.node(op_type, inputs, attributes, outputs=[ir.val(title)], name=f"{op_type}:{title}")
        self.graph.append(node)
        return node.outputs[0]


def _rounding_pair(reader: ir.Node) -> Pair | None:
    """A quantize node with the one dequantize node behind it."""
    back = only_reader(reader.outputs[0]) if reader.op_type == "QuantizeLinear" else None
    return (reader, back) if back is not None and back.op_type == "DequantizeLinear" else None


def _own_weight(layer: ir.Node) -> ir.Node | None:
    """The dequantize node of a convolution's weight, where it is stored for this one alone and has all channels."""
    weight = made_by(layer.inputs[1], "DequantizeLinear") if layer.op_type == "Conv" else None
    is_own = weight is not None and only_reader(weight.outputs[0]) is layer and array_of(weight.inputs[0]) is not None
    return weight if is_own and layer.attributes.get_int("group", 1) == 1 else None
