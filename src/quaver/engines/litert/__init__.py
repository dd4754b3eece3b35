"""LiteRT 2 (formerly TensorFlow Lite) with its XNNPACK delegate."""

from typing import TYPE_CHECKING

from quaver.engines.engine import Engine

if TYPE_CHECKING:
    from quaver.program import Program


class LiteRT(Engine):
    """``model.tflite``. Signed int8 everywhere, channels last inside, and every op's result is rounded."""

    name = "litert"
    package = "ai_edge_litert"
    title = "LiteRT"
    requirement = "'quaver[litert]'"
    suffix = ".tflite"
    reads = (".tflite",)
    folder = "mobile"
    takes_bytes = True
    asymmetric = True
    input_layouts = ("nchw", "nhwc")
    op_types = (
        *("conv2d", "depthwise_conv2d", "conv1d", "conv2d_transpose", "mul"),
        *("elementwise_add", "elementwise_mul", "pool2d", "mean"),
        *("concat", "flatten", "reshape", "transpose", "slice", "split", "assign", "pixel_shuffle"),
    )
    shows_inside = True
    script = (
        "from ai_edge_litert.interpreter import Interpreter",
        "model = Interpreter(str(path))",
        "model.allocate_tensors()",
        'model.set_tensor(model.get_input_details()[0]["index"], batch)',
        "model.invoke()",
        'outputs = [model.get_tensor(port["index"]) for port in model.get_output_details()]',
    )
    remedy = "Run it on another engine (openvino, onnx, executorch), or install another version of ai-edge-litert."

    def form(self, program: "Program") -> "Program":
        """The mobile form, which is the same for all engines that run XNNPACK; a float program as it is."""
        from quaver.program import Stage

        meant = program.made_for(self.name)
        return meant if program.stage in (Stage.MOBILE, Stage.FLOAT) else self.rewrite(meant)

    def rewrite(self, program: "Program") -> "Program":
        """Signed int8 everywhere, and every op's result rounded."""
        from quaver.xnnpack.mobile_form import mobile_form

        return mobile_form(program)


ENGINE = LiteRT()
