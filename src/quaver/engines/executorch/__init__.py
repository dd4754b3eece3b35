"""ExecuTorch 1.4 with the XNNPACK delegate."""

from typing import TYPE_CHECKING

from quaver.engines.engine import Engine

if TYPE_CHECKING:
    from quaver.program import Program


class ExecuTorch(Engine):
    """``model.pte``. Every op's result is rounded; its kernels widen to 16 bits before they multiply, and never saturate."""

    name = "executorch"
    package = "executorch"
    title = "ExecuTorch"
    requirement = "'quaver[executorch]'"
    suffix = ".pte"
    reads = (".pte",)
    folder = "mobile"
    takes_bytes = True
    asymmetric = True
    op_types = (
        *("conv2d", "depthwise_conv2d", "conv1d", "conv2d_transpose", "mul", "elementwise_add", "elementwise_mul"),
        *("pool2d", "mean", "concat", "flatten", "reshape", "transpose", "slice", "assign"),
    )
    script = (
        "import torch",
        "from executorch.runtime import Runtime",
        'results = Runtime.get().load_program(path).load_method("forward").execute([torch.from_numpy(batch)])',
        "outputs = [result.numpy() for result in results]",
    )
    remedy = "Run it on another engine (openvino, onnx), or install another version of executorch."

    def form(self, program: "Program") -> "Program":
        """The mobile form; a float program as it is."""
        from quaver.passes import TransformForMobilePass
        from quaver.program import Stage

        return program if program.stage in (Stage.MOBILE, Stage.FLOAT) else TransformForMobilePass().apply(program)

    def rewrite(self, program: "Program") -> "Program":
        """Signed int8 everywhere, and every op's result rounded."""
        from quaver.xnnpack.mobile_form import mobile_form

        return mobile_form(program)


ENGINE = ExecuTorch()
