"""ONNX Runtime's CPU provider, 1.31, reading quantize and dequantize pairs."""

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaver.engines.engine import Engine, Options

if TYPE_CHECKING:
    from torch import fx

    from quaver.engines.inspection import Profile, Revealed
    from quaver.graph.rewriter import Lowering
    from quaver.program import Program
    from quaver.runtime.runner import Runner


class ONNXRuntime(Engine):
    """``model.onnx``. Its integer kernels read and write activations of one type, so signed ones are stored as 0 … 255."""

    name = "onnx"
    package = "onnxruntime"
    title = "ONNX Runtime"
    requirement = "'quaver[onnxruntime]'"
    suffix = ".onnx"
    reads = (".onnx",)
    op_types = (
        "conv2d",
        "depthwise_conv2d",
        "mul",
        "matmul",
        "elementwise_add",
        "elementwise_mul",
        "pool2d",
        "mean",
        "concat",
        "interpolate",
        "flatten",
        "reshape",
        "transpose",
        "slice",
        "split",
        "assign",
        "pixel_shuffle",
        # which it computes in float; a convolution in front of one runs in int8 only if its own result is rounded
        "hard_swish",
        "hard_sigmoid",
        "swish",
        "sigmoid",
        "leaky_relu",
    )
    rounds_products = True
    saturates = True
    tells_layers = True
    remedy = "Run it on another engine (openvino reads it, too), or install another version of onnxruntime."

    @property
    def can_write(self) -> bool:
        """With onnx alone."""
        return find_spec("onnx") is not None

    def lowering(self) -> "Lowering":
        """From integers to integers; sums in float32, on the integers as they are stored."""
        from quaver.engines.onnxruntime.lowering import ONNXRuntimeLowering

        return ONNXRuntimeLowering()

    def computes_exactly(self, node: "fx.Node") -> bool:
        """What moves or compares. It rounds a product or a sum of integers now and then otherwise at a tie: once in two
        million (`docs/results.md`).
        """
        from quaver.graph.nodes import is_quantize
        from quaver.int8.patterns import compares, moves

        return is_quantize(node) or moves(node) or compares(node)

    def write(self, program: "Program", file: Path, origin: dict[str, Any], options: Options) -> None:
        """In the form in which it runs most of the model in int8."""
        from quaver.engines.onnxruntime.writer import write

        write(program, file, origin, options)

    def weights_beside(self, file: Path) -> Path | None:
        """Where others store them beside the model."""
        return file.with_name(f"{file.name}.data")

    def load(self, file: Path, threads: int) -> "Runner":
        """On the CPU provider."""
        from quaver.engines.onnxruntime.runner import load

        return load(file, threads)

    def reveal(self, file: Path, tensors: list[str], threads: int, apart: Collection[str]) -> "Revealed":
        """Tensors as further outputs."""
        from quaver.engines.onnxruntime.inspection import reveal

        return reveal(file, tensors, threads)

    def profile(self, file: Path, threads: int, batch: int, rounds: int) -> "Profile":
        """From its profiler."""
        from quaver.engines.onnxruntime.inspection import profile

        return profile(file, threads, batch, rounds)


ENGINE = ONNXRuntime()
