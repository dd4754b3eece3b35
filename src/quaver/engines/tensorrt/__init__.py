"""TensorRT 10 and later, by explicit quantization. No TensorRT was at hand: its files run on ONNX Runtime here."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from quaver.engines.engine import Engine

if TYPE_CHECKING:
    from quaver.program import Program


class TensorRT(Engine):
    """``model.onnx`` in TensorRT's form: signed int8 with zero points of 0, and pairs where it fuses them.

    ``package`` is what executes the file here, node by node and as it is written. TensorRT itself adds a shortcut inside the
    convolution in front of it, and rounds nowhere but where the file says.
    """

    name = "tensorrt"
    package = "onnxruntime"
    title = "TensorRT"
    requirement = "'quaver[onnxruntime]'"
    suffix = ".onnx"
    reads = (".onnx",)
    folder = "tensorrt"
    op_types = (
        *("conv2d", "depthwise_conv2d", "conv1d", "conv2d_transpose", "mul", "matmul", "elementwise_add", "elementwise_mul"),
        *("pool2d", "mean", "concat", "interpolate", "flatten", "reshape", "transpose", "slice", "split", "assign"),
        "pixel_shuffle",
    )
    unsigned = False
    fuses_add = True
    rounds_as_written = True
    shows_inside = True
    has_rules = True
    weights = "{name}.data"  # where others store them
    caveat = "ONNX Runtime executed the file, node by node as it is written; TensorRT itself was not asked"
    remedy = "Install another version of onnxruntime."

    @property
    def can_write(self) -> bool:
        """With onnx alone."""
        return find_spec("onnx") is not None

    def rewrite(self, program: "Program") -> "Program":
        """The program on signed grids whose zero is 0."""
        from quaver.engines.tensorrt.symmetric import symmetric

        return symmetric(program)


ENGINE = TensorRT()
