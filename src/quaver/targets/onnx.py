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
        # which it computes in float; a convolution in front of one runs in int8 only if its own result is rounded
        "hard_swish",
        "hard_sigmoid",
        "swish",
        "sigmoid",
        "leaky_relu",
    ),
    unsigned=True,
    fuses_add=False,
    saturates=True,
    one_type=True,
)
