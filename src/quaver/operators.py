"""What the ops of a graph are called, and what each means to quantization.

Names are the ones users of the field know: ``conv2d``, ``depthwise_conv2d``, ``mul`` (a linear layer), ``pool2d`` …
Everything here is a fact about a single op; decisions are made in ``passes/``.
"""

import operator
from typing import Any

import torch
from torch import fx

from quaver.graph.nodes import argument, is_parameter, is_stored, packet

aten = torch.ops.aten

CONVOLUTIONS = frozenset({"conv1d", "conv2d", "depthwise_conv2d", "conv2d_transpose"})
WEIGHTED = CONVOLUTIONS | {"mul"}
"""Ops with a weight of their own; ``matmul`` joins them where one operand is a parameter."""

_NAMES: dict[str, str] = {
    "conv1d": "conv1d",
    "conv2d": "conv2d",
    "conv_transpose2d": "conv2d_transpose",
    "linear": "mul",
    "matmul": "matmul",
    "mm": "matmul",
    "bmm": "matmul",
    "add": "elementwise_add",
    "sub": "elementwise_sub",
    "mul": "elementwise_mul",
    "div": "elementwise_div",
    "max_pool2d": "pool2d",
    "avg_pool2d": "pool2d",
    "adaptive_avg_pool2d": "pool2d",
    "adaptive_max_pool2d": "pool2d",
    "cat": "concat",
    "concat": "concat",
    "concatenate": "concat",
    "relu": "relu",
    "relu6": "relu6",
    "hardswish": "hard_swish",
    "hardsigmoid": "hard_sigmoid",
    "silu": "swish",
    "sigmoid": "sigmoid",
    "leaky_relu": "leaky_relu",
    "upsample_nearest2d": "interpolate",
    "_upsample_nearest_exact2d": "interpolate",
    "upsample_bilinear2d": "interpolate",
    "upsample_bicubic2d": "interpolate",
    "mean": "mean",
    "flatten": "flatten",
    "reshape": "reshape",
    "view": "reshape",
    "unflatten": "reshape",
    "squeeze": "reshape",
    "unsqueeze": "reshape",
    "permute": "transpose",
    "transpose": "transpose",
    "t": "transpose",
    "slice": "slice",
    "narrow": "slice",
    "select": "slice",
    "split": "split",
    "split_with_sizes": "split",
    "chunk": "split",
    "unbind": "split",
    "contiguous": "assign",
    "clone": "assign",
    "pixel_shuffle": "pixel_shuffle",
}

OP_TYPES = frozenset(_NAMES.values()) | {"depthwise_conv2d"}
"""Every op type that a pass can be told to quantize."""

_MOVES = frozenset({"flatten", "reshape", "transpose", "slice", "split", "assign", "pixel_shuffle"})
_KEEPS_SIGN = _MOVES | {"pool2d", "concat", "interpolate", "mean", "dropout", "elementwise_add", "elementwise_mul"}
ACTIVATIONS = frozenset({"relu", "relu6", "hardtanh", "clamp", "leaky_relu", "silu", "hardswish", "gelu", "elu", "sigmoid"})
"""What engines compute right behind a convolution, in one step with it."""

_NEVER_NEGATIVE = frozenset({"relu", "relu6", "hard_sigmoid", "sigmoid", "softmax"})
_UNSEEN = frozenset({"quantizer_mark", "sym_size", "lift_fresh_copy", "lift_fresh", "detach", "detach_", "alias", "to"})


def type_of(node: fx.Node, weight_shape: tuple[int, ...] | None = None) -> str | None:
    """The op's type, or None for what is no op to a user (shape arithmetic, list access, counters)."""
    if node.op != "call_function" or node.target is operator.getitem or not isinstance(node.target, torch._ops.OpOverload):
        return None
    name = packet(node)
    if name in _UNSEEN or name.startswith(("sym_", "_assert")):
        return None
    if name == "conv2d" and weight_shape is not None and weight_shape[1] == 1 and argument(node, "groups") > 1:
        return "depthwise_conv2d"
    if name == "hardtanh":
        bounds = (argument(node, "min_val"), argument(node, "max_val"))
        return "relu6" if bounds == (0, 6) else "hardtanh"
    if name in ("add", "sub", "mul", "div") and len(activation_inputs(node)) == 1 and not _reads_parameter(node):
        return "scale"
    return _NAMES.get(name, name)


def _reads_parameter(node: fx.Node) -> bool:
    return any(is_parameter(value) for value in node.all_input_nodes)


def weight_of(node: fx.Node, op_type: str) -> fx.Node | None:
    """The weight of an op that has one: a convolution's, a linear layer's, a matrix product's parameter."""
    if op_type in WEIGHTED:
        return node.args[1] if is_stored(node.args[1]) else None  # type: ignore[return-value]
    if op_type == "matmul" and is_stored(node.args[1], rank=2):
        return node.args[1]  # type: ignore[return-value]
    return None


def channel_axis(op_type: str) -> int:
    """The axis of a weight that has a scale of its own per entry."""
    return {"conv2d_transpose": 1, "matmul": -1}.get(op_type, 0)


def pair_axis(node: fx.Node, op_type: str, weight_shape: tuple[int, ...]) -> int | None:
    """The axis of a weight whose neighbours a processor multiplies and adds in pairs.

    A depthwise filter has none, unless there are several for a channel: that is run as a convolution in groups.
    """
    return pair_axis_of(op_type, weight_shape, argument(node, "groups") if op_type in CONVOLUTIONS else 1)


def pair_axis_of(op_type: str, weight_shape: tuple[int, ...], groups: int) -> int | None:
    """`pair_axis` by what it depends on."""
    if groups > 1 and groups == weight_shape[0] and (op_type == "conv2d_transpose" or weight_shape[1] == 1):
        return None
    return 0 if op_type in ("conv2d_transpose", "matmul") else 1


def activation_inputs(node: fx.Node) -> list[fx.Node]:
    """The tensors an op computes on, in order; weights, biases and shape numbers are not among them."""
    name = packet(node)
    if name in ("cat", "concat", "concatenate", "stack"):
        tensors: Any = node.args[0]
    elif name in ("add", "sub", "mul", "div", "matmul", "mm", "bmm"):
        tensors = node.args[:2]
    else:
        tensors = node.args[:1]
    return [value for value in tensors if isinstance(value, fx.Node) and not is_parameter(value)]


def keeps_range(node: fx.Node, op_type: str) -> bool:
    """Whether the op's output lies on its input's grid whatever the values: it moves or selects, never computes."""
    if op_type == "pool2d":
        return packet(node) in ("max_pool2d", "adaptive_max_pool2d")
    if op_type == "interpolate":
        return packet(node) in ("upsample_nearest2d", "_upsample_nearest_exact2d")
    return op_type == "concat" or op_type in _MOVES


def never_negative(node: fx.Node, types: dict[fx.Node, str], known: dict[fx.Node, bool] | None = None) -> bool:
    """Whether the op's output cannot be negative, whatever the input."""
    known = {} if known is None else known
    stack = [node]
    while stack:
        current = stack[-1]
        if current in known:
            stack.pop()
            continue
        op_type = types.get(current)
        if op_type in _NEVER_NEGATIVE:
            known[current] = True
        elif op_type == "clamp":
            floor = argument(current, "min")
            known[current] = isinstance(floor, int | float) and floor >= 0
        elif op_type == "hardtanh":
            known[current] = argument(current, "min_val") >= 0
        elif packet(current) == "upsample_bicubic2d":  # overshoots
            known[current] = False
        elif current.op == "call_function" and (op_type in _KEEPS_SIGN or current.target is operator.getitem):
            inputs = activation_inputs(current)
            waiting = [value for value in inputs if value not in known]
            if waiting:
                stack.extend(waiting)
                continue
            plain = bool(inputs) and not _reads_parameter(current) and "alpha" not in current.kwargs
            known[current] = plain and all(known[value] for value in inputs)
        else:
            known[current] = False
        stack.pop()
    return known[node]
