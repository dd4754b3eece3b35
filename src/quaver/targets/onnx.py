"""ONNX Runtime's CPU provider, 1.31, reading quantize and dequantize pairs."""

from quaver.targets.target import Target

ONNX = Target(
    name="onnx",
    engine="onnxruntime",
    suffix=".onnx",
    op_types=(
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
    ),
    unsigned=True,
    fuses_add=False,
    saturates=True,
)
