"""ONNX Runtime's CPU provider, 1.31, reading quantize and dequantize pairs."""

from importlib.util import find_spec

from quaver.engines.engine import Engine


class ONNXRuntime(Engine):
    """``model.onnx``. Its integer kernels read and write activations of one type, so signed ones are stored as 0 … 255."""

    name = "onnx"
    package = "onnxruntime"
    title = "ONNX Runtime"
    requirement = "'quaver[onnxruntime]'"
    suffix = ".onnx"
    reads = (".onnx",)
    op_types = (
        *("conv2d", "depthwise_conv2d", "conv1d", "mul", "matmul", "elementwise_add", "elementwise_mul", "pool2d", "mean"),
        *("concat", "interpolate", "flatten", "reshape", "transpose", "slice", "split", "assign", "pixel_shuffle"),
        # which it computes in float; a convolution in front of one runs in int8 only if its own result is rounded
        *("hard_swish", "hard_sigmoid", "swish", "sigmoid", "leaky_relu"),
    )
    rounds_products = True
    takes_bytes = True
    asymmetric = True
    scales_images = True
    saturates = True
    shows_inside = True
    tells_layers = True
    weights = "{name}.data"  # where others store them
    script = (
        "import onnxruntime",
        "outputs = onnxruntime.InferenceSession(path).run(None, {{{input!r}: batch}})",
    )
    remedy = "Run it on another engine (openvino reads it, too), or install another version of onnxruntime."

    @property
    def can_write(self) -> bool:
        """With onnx alone."""
        return find_spec("onnx") is not None


ENGINE = ONNXRuntime()
