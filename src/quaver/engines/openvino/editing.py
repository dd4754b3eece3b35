"""What the rewritings of an OpenVINO model share."""

from collections.abc import Iterable

from quaver.engines.openvino.runner import ov

CONVOLUTIONS = ("Convolution", "GroupConvolution")
MOVES = (
    "DepthToSpace",
    "Pad",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "StridedSlice",
    "Transpose",
    "Unsqueeze",
    "VariadicSplit",
)
TRANSPOSED = ("ConvolutionBackpropData", "GroupConvolutionBackpropData")


def is_layer(op: ov.Node) -> bool:
    """Whether an op is a convolution or a linear layer."""
    return op.get_type_name() in CONVOLUTIONS + TRANSPOSED or is_linear(op)


def is_linear(op: ov.Node) -> bool:
    """Whether an op is a matrix product with a weight."""
    if op.get_type_name() != "MatMul":
        return False
    weight = op.input_value(1).get_node()
    while weight.get_type_name() in ("Convert", "Multiply", "Transpose"):
        weight = weight.input_value(0).get_node()
    return bool(weight.get_type_name() == "Constant")


def is_with_constant(op: ov.Node) -> bool:
    """Whether an op takes each value together with a constant."""
    types = ("Add", "Multiply", "Subtract")
    return op.get_type_name() in types and op.input_value(1).get_node().get_type_name() == "Constant"


def is_rounded(value: ov.Output) -> bool:
    """Whether a tensor is rounded, and perhaps moved and brought back to its place."""
    op = value.get_node()
    while op.get_type_name() in MOVES or is_with_constant(op):
        op = op.input_value(0).get_node()
    return bool(op.get_type_name() == "FakeQuantize")


def hand_over(old: ov.Output, readers: Iterable[ov.Input], new: ov.Output) -> None:
    """Let these readers of a tensor read another, which takes its names."""
    names = old.get_names()
    old.set_names(set())
    for reader in readers:
        reader.replace_source_output(new)
    new.set_names(names)
