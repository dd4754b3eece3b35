"""ExecuTorch 1.4 with the XNNPACK delegate."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaver.engines.engine import Engine, Options

if TYPE_CHECKING:
    from torch import fx

    from quaver.graph.rewriter import Lowering
    from quaver.program import Program
    from quaver.runtime.runner import Runner


class ExecuTorch(Engine):
    """``model.pte``. Every op's result is rounded; its kernels widen to 16 bits before they multiply, and never saturate."""

    name = "executorch"
    package = "executorch"
    title = "ExecuTorch"
    requirement = "'quaver[executorch]'"
    suffix = ".pte"
    reads = (".pte",)
    folder = "mobile"
    op_types = (
        "conv2d",
        "depthwise_conv2d",
        "conv2d_transpose",
        "mul",
        "elementwise_add",
        "elementwise_mul",
        "pool2d",
        "mean",
        "concat",
        "flatten",
        "reshape",
        "transpose",
        "slice",
        "assign",
    )
    remedy = "Run it on another engine (openvino, onnx), or install another version of executorch."

    def form(self, program: "Program") -> "Program":
        """The mobile form; a float program as it is."""
        from quaver.passes import TransformForMobilePass
        from quaver.program import Stage

        return program if program.stage in (Stage.MOBILE, Stage.FLOAT) else TransformForMobilePass().apply(program)

    def rewrite(self, program: "Program") -> "Program":
        """Signed int8 everywhere, and every op's result rounded."""
        from quaver.engines.executorch.mobile_form import mobile_form

        return mobile_form(program)

    def lowering(self) -> "Lowering":
        """From integers to integers; sums in fixed point."""
        from quaver.engines.executorch.lowering import XNNPACKLowering

        return XNNPACKLowering()

    def computes_exactly(self, node: "fx.Node") -> bool:
        """What it rounds in one step with the op in front, and what moves or compares."""
        from quaver.engines.executorch.lowering import computes_exactly

        return computes_exactly(node)

    def write(self, program: "Program", file: Path, origin: dict[str, Any], options: Options) -> None:
        """XNNPACK gets all that it takes, ExecuTorch's own kernels the rest."""
        from quaver.engines.executorch.writer import serialized

        file.write_bytes(serialized(program))

    def load(self, file: Path, threads: int) -> "Runner":
        """With XNNPACK."""
        from quaver.engines.executorch.runner import load

        return load(file, threads)


ENGINE = ExecuTorch()
