"""ExecuTorch 1.4 with the XNNPACK delegate."""

from quaver.targets.target import Target

EXECUTORCH = Target(
    name="executorch",
    engine="executorch",
    suffix=".pte",
    op_types=(
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
    ),
    unsigned=True,
    fuses_add=False,
    saturates=False,  # its kernels widen to 16 bits before they multiply
)
