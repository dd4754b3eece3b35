"""What the ops of a graph are called, and what each means to quantization: a row of facts per op.

Rows go by the op's name in aten (its packet: ``conv2d``, ``hardswish``). Types are the names that users of the field know:
``depthwise_conv2d``, ``mul`` (a linear layer), ``pool2d`` … To add an activation, add a row; where an engine computes it in
an order of its own, add a kernel there. Questions about a node of a graph are asked in ``graph/nodes.py``, which reads the
rows; decisions are made in ``passes/``.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Kind = (
    Literal["convolution", "linear", "matrix product", "elementwise", "clamp", "activation", "average"]
    | Literal["move", "pad", "stack", "other"]
    | Literal["quantizer", "quantize", "dequantize", "shape"]
)
"""What an op does. ``elementwise``: of two tensors, or of a tensor and a number; an ``activation`` is of one, and so is a
``clamp``. A ``move`` moves or selects values and computes none: what it gives lies on its input's grid. The last four are
no op to an author: a ``quantizer``, the ``quantize`` and ``dequantize`` of a frozen graph, arithmetic on a ``shape``."""


@dataclass(frozen=True)
class WeightAxes:
    """The axes of an op's weight, and of what it gives: a scale per output channel, a sum over the input channels."""

    channel_axis: int = 0
    input_axis: int = 1
    output_axis: int = 1  # of the op's output: the channels that a bias is added to
    rank: int | None = None  # how many dimensions it has to have


NO_WEIGHT = WeightAxes()


@dataclass(frozen=True)
class OpFacts:
    """What is known of an op.

    ``type``: its name in the field, by which a pass is told to quantize it; empty: it goes by its packet, and no pass takes
    it. ``operands``: how many tensors it computes on; 0: a list of them. ``bounds``: what a clamp clamps to, numbers or the
    names of arguments. ``fused``: engines compute it in one step with the layer in front, on the unrounded result, and so an
    addition behind it; a quantizer between the two would round what no engine rounds. ``never_negative``: what it gives,
    whatever it is given. ``keeps_positive``: given nothing negative it gives nothing negative, as moves and averages do.
    ``takes_complex``: it is defined for complex numbers.

    ``dispatched``: what torch's dispatcher calls it, where that is another name. ``reads_signed``: how it reads signed
    integers in an engine whose products want them shifted by 128. Plain; shifted (among them what was not measured); either;
    or it moves them, and those who read its result decide.
    """

    type: str = ""
    kind: Kind = "other"
    operands: int = 1
    weight: WeightAxes = NO_WEIGHT
    bounds: tuple[str | float, str | float] | None = None
    fused: bool = False
    never_negative: bool = False
    keeps_positive: bool = False
    takes_complex: bool = False
    reads_signed: Literal["shifted", "plain", "either", "moved"] = "shifted"
    dispatched: tuple[str, ...] = ()

    @cached_property
    def is_layer(self) -> bool:
        """Whether it is a convolution or a linear layer: with a weight, a bias, and an activation that engines fuse."""
        return self.kind in ("convolution", "linear")

    @cached_property
    def only_moves(self) -> bool:
        """Whether it moves or selects values and computes none; it may fill in what a pad is told to."""
        return self.kind in ("move", "pad", "stack")

    @cached_property
    def keeps_sign(self) -> bool:
        """Whether it gives nothing negative if it is given nothing negative."""
        return self.keeps_positive or self.kind in ("move", "average")

    @cached_property
    def has_weight(self) -> bool:
        """Whether its second operand may be a weight that passes quantize."""
        return bool(self.type) and self.weight is not NO_WEIGHT


UNKNOWN = OpFacts()  # an op without a row
QUANTIZER = OpFacts(kind="quantizer")

OPS: dict[str, OpFacts] = {
    # layers, and products of two tensors
    "conv1d": OpFacts("conv1d", "convolution", weight=WeightAxes(rank=3)),
    "conv2d": OpFacts("conv2d", "convolution", weight=WeightAxes(rank=4)),
    "conv_transpose2d": OpFacts("conv2d_transpose", "convolution", weight=WeightAxes(1, 0, rank=4), reads_signed="either"),
    "linear": OpFacts("mul", "linear", weight=WeightAxes(output_axis=-1), reads_signed="either"),
    "conv3d": OpFacts("conv3d", "convolution", weight=WeightAxes(rank=5)),
    "conv_transpose1d": OpFacts(weight=WeightAxes(1, 0, rank=3)),
    "conv_transpose3d": OpFacts(weight=WeightAxes(1, 0, rank=5)),
    **dict.fromkeys(("matmul", "mm"), OpFacts("matmul", "matrix product", 2, WeightAxes(-1, 0, -1, rank=2))),
    "bmm": OpFacts("matmul", "matrix product", 2),  # a matrix per image: no weight is one
    "add": OpFacts("elementwise_add", "elementwise", 2, keeps_positive=True, reads_signed="plain"),
    "sub": OpFacts("elementwise_sub", "elementwise", 2),
    "mul": OpFacts("elementwise_mul", "elementwise", 2, keeps_positive=True, reads_signed="plain"),
    "div": OpFacts("elementwise_div", "elementwise", 2),
    # activations
    "relu": OpFacts("relu", "clamp", bounds=(0.0, math.inf), fused=True),
    "relu6": OpFacts("relu6", "clamp", bounds=(0.0, 6.0), fused=True),
    "hardtanh": OpFacts(kind="clamp", bounds=("min_val", "max_val"), fused=True),
    "clamp": OpFacts(kind="clamp", bounds=("min", "max"), fused=True),
    "leaky_relu": OpFacts("leaky_relu", "activation", fused=True),
    "hardswish": OpFacts("hard_swish", "activation", fused=True),
    "silu": OpFacts("swish", "activation", fused=True, takes_complex=True),
    "sigmoid": OpFacts("sigmoid", "activation", fused=True, never_negative=True, takes_complex=True),
    "gelu": OpFacts(kind="activation", fused=True),
    "elu": OpFacts(kind="activation", fused=True),
    "tanh": OpFacts(kind="activation", fused=True, takes_complex=True),
    "mish": OpFacts(kind="activation", fused=True),
    # OpenVINO has it as a layer of its own, in float (Math), and adds behind that: the addition's operands are rounded
    "hardsigmoid": OpFacts("hard_sigmoid", "activation", never_negative=True),
    "softmax": OpFacts(never_negative=True, dispatched=("_softmax",)),
    # averages and resizing
    "avg_pool2d": OpFacts("pool2d", "average", reads_signed="plain"),
    "adaptive_avg_pool2d": OpFacts("pool2d", "average", reads_signed="plain", dispatched=("_adaptive_avg_pool2d",)),
    "mean": OpFacts("mean", "average", reads_signed="plain"),
    "upsample_bilinear2d": OpFacts("interpolate", keeps_positive=True),
    "upsample_bicubic2d": OpFacts("interpolate"),  # overshoots
    "dropout": OpFacts(keeps_positive=True, dispatched=("native_dropout",)),
    # what only moves values
    "upsample_nearest2d": OpFacts("interpolate", "move", reads_signed="plain"),
    "_upsample_nearest_exact2d": OpFacts("interpolate", "move"),
    "max_pool2d": OpFacts(
        "pool2d", "move", reads_signed="plain", dispatched=("max_pool2d_with_indices", "mkldnn_max_pool2d")
    ),
    "adaptive_max_pool2d": OpFacts("pool2d", "move"),
    **dict.fromkeys(("cat", "concat", "concatenate"), OpFacts("concat", "move", 0, reads_signed="moved")),
    "stack": OpFacts(kind="stack", operands=0),
    "flatten": OpFacts("flatten", "move", reads_signed="plain"),
    "reshape": OpFacts("reshape", "move", reads_signed="plain", dispatched=("_reshape_alias",)),
    "view": OpFacts("reshape", "move", reads_signed="plain", dispatched=("_unsafe_view",)),
    **dict.fromkeys(("squeeze", "unsqueeze", "unflatten"), OpFacts("reshape", "move", reads_signed="moved")),
    **dict.fromkeys(("permute", "transpose"), OpFacts("transpose", "move", reads_signed="moved")),
    "t": OpFacts("transpose", "move"),
    **dict.fromkeys(("slice", "narrow", "select"), OpFacts("slice", "move", reads_signed="moved")),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), OpFacts("split", "move", reads_signed="moved")),
    "unbind": OpFacts("split", "move"),
    "getitem": OpFacts(kind="move", reads_signed="moved"),  # a part of a split
    **dict.fromkeys(("contiguous", "clone"), OpFacts("assign", "move", reads_signed="moved")),
    "pixel_shuffle": OpFacts("pixel_shuffle", "move", reads_signed="plain"),
    **dict.fromkeys(
        ("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d"),
        OpFacts(kind="pad"),
    ),
}

BY_PREFIX: dict[str, OpFacts] = {
    "quantize_per_": OpFacts(kind="quantize"),
    "dequantize_per_": OpFacts(kind="dequantize"),
    **dict.fromkeys(("sym_", "_assert", "item", "_local_scalar_dense"), OpFacts(kind="shape")),
}
"""Rows for families of ops that are no op to a model's author."""

UNSEEN = frozenset({"quantizer_marker", "lift_fresh_copy", "lift_fresh", "detach", "detach_", "alias", "to"})
"""Others that are none."""

CONVOLUTIONS = frozenset(row.type for row in OPS.values() if row.kind == "convolution") | {"depthwise_conv2d"}
WEIGHTED = frozenset(row.type for row in OPS.values() if row.is_layer) | CONVOLUTIONS
"""Types of ops with a weight of their own; ``matmul`` joins them where one operand is a parameter."""

OP_TYPES = frozenset(row.type for row in OPS.values() if row.type) | CONVOLUTIONS
"""Every op type that a pass can be told to quantize."""


def packets_of(*kinds: Kind) -> frozenset[str]:
    """The ops of these kinds."""
    return frozenset(packet for packet, row in OPS.items() if row.kind in kinds)


_WEIGHTS = {row.type: row.weight for row in OPS.values() if row.has_weight}
_WEIGHTS["depthwise_conv2d"] = _WEIGHTS["conv2d"]


def channel_axis(op_type: str) -> int:
    """The axis of a weight that has a scale of its own per entry."""
    return _WEIGHTS[op_type].channel_axis


def saturation_axis_of(op_type: str, weight_shape: tuple[int, ...], groups: int) -> int | None:
    """The axis of a weight along which a processor adds the products of two neighbours in 16 bits, which may saturate.

    A depthwise filter has none, unless there are several for a channel: that is run as a convolution in groups.
    """
    if groups > 1 and groups == weight_shape[0] and (op_type == "conv2d_transpose" or weight_shape[1] == 1):
        return None
    return _WEIGHTS[op_type].input_axis
