"""OpenVINO's CPU plugin (oneDNN), 2026.4."""

from quaver.targets.target import Target

OPENVINO = Target(
    name="openvino",
    engine="openvino",
    suffix=".xml",
    op_types=(
        "conv2d",
        "depthwise_conv2d",
        "conv2d_transpose",
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
    fuses_add=True,
    saturates=True,
)
