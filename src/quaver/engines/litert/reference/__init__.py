"""LiteRT 2 without XNNPACK: its reference kernels, whose fixed-point arithmetic microcontrollers have."""

from quaver.engines.litert import LiteRT


class LiteRTReference(LiteRT):
    """``model.tflite``, the same as LiteRT's own; what is another is how it is computed."""

    name = "litert_reference"
    title = "LiteRT's reference kernels"
    folder = "litert_reference"
    script = (
        "from ai_edge_litert.interpreter import Interpreter, OpResolverType",
        "model = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)",
        *LiteRT.script[2:],
    )


ENGINE = LiteRTReference()
