"""What the two quantizing passes share: their options, and the questions they ask of an op."""

import ast
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import fx

from quaver.config.check import Rule, boolean, check, one_of, rate, texts, whole
from quaver.config.layer_bits import LayerBits, as_pairs, bits_for, layer_bits
from quaver.config.quant_config import ACTIVATION_TYPES, BITS_RULE
from quaver.config.scopes import contains
from quaver.graph.nodes import Op, argument, dtype_of, is_written, packet
from quaver.operators import ACTIVATIONS
from quaver.program.placements import Options
from quaver.targets import TARGETS

COMMON_RULES: dict[str, Rule] = {
    "skip_pattern": texts(),
    "activation_quantize_type": one_of(*ACTIVATION_TYPES),
    "activation_bits": BITS_RULE,
    "layer_bits": layer_bits(),
    "window_size": whole(1),
    "moving_rate": rate(),
    "pass_through": boolean(),
    "target": one_of(*TARGETS),
}

_FUSED = frozenset({"conv1d", "conv2d", "conv_transpose2d", "linear"})


def skipped_by(op: Op, patterns: str | Iterable[str]) -> str:
    """Why a skip pattern keeps the op float, or nothing."""
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        if contains(op.scope, pattern):
            return f"its scope {op.scope!r} contains the skip pattern {pattern!r}"
    return ""


def skip_pattern_in(reason: str) -> str | None:
    """The skip pattern that such a reason names."""
    found = re.fullmatch(r"its scope .* contains the skip pattern (.*)", reason)
    return None if found is None else ast.literal_eval(found[1])


def unquantizable(inputs: list[fx.Node], twin: fx.Node | None) -> str:
    """Why no pass can quantize the inputs of an op, whose ``twin`` is the same op in training; or nothing."""
    if not is_float(inputs):
        return "its inputs are not floating-point tensors"
    if any(map(is_padded_with_infinity, inputs)):
        return "its input is padded with infinity, which no grid holds"
    if twin is None:
        return "it runs only in evaluation, so training cannot find its range"
    if any(map(is_written, (*inputs, twin, *twin.all_input_nodes))):
        return "the model writes into this tensor in place (an assignment to a slice, say); build a new one instead"
    return ""


def is_padded_with_infinity(node: fx.Node) -> bool:
    """Whether a tensor is a padding with plus or minus infinity, as some write a max pool."""
    if node.op != "call_function" or packet(node) not in ("pad", "constant_pad_nd"):
        return False
    value = argument(node, "value")
    return isinstance(value, float) and math.isinf(value)


def is_float(tensors: list[fx.Node]) -> bool:
    """Whether there are tensors, all of them floating-point as far as is known."""
    dtypes = list(map(dtype_of, tensors))
    return bool(tensors) and all(dtype is None or dtype.is_floating_point for dtype in dtypes)


def ends_convolution(node: fx.Node) -> bool:
    """Whether a tensor comes out of a convolution (its batch norm, its activation) and nobody else reads it."""
    if node.op != "call_function" or len(node.users) != 1:
        return False
    return packet(node) in _FUSED or (packet(node) in ACTIVATIONS | {"batch_norm"} and ends_convolution(node.args[0]))  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class InputQuantizers:
    """What the two quantizing passes have in common: how the inputs of an op are quantized."""

    skip_pattern: str | tuple[str, ...] | list[str] = ("skip_quant",)
    activation_quantize_type: str = "moving_average_abs_max"
    activation_bits: int = 8
    layer_bits: LayerBits = ()
    window_size: int = 10000
    moving_rate: float = 0.9
    pass_through: bool = False
    target: str = "openvino"
    act_quantize_func: Any = None
    act_preprocess_func: Any = None

    def __post_init__(self) -> None:
        rules = COMMON_RULES | self.own_rules
        check(type(self).__name__, {key: getattr(self, key) for key in rules}, rules)
        object.__setattr__(self, "layer_bits", as_pairs(self.layer_bits))

    own_rules: ClassVar[dict[str, Rule]] = {}

    def input_options(self, op: Op) -> Options:
        """What the quantizer of an op's input is made from."""
        functions = (self.act_quantize_func, self.act_preprocess_func)
        return self.options(self.activation_quantize_type, self.bits_for(op)[1], *functions)

    def bits_for(self, op: Op) -> tuple[int, int]:
        """Bits of an op's weight and of its inputs."""
        return bits_for(op.scope, as_pairs(self.layer_bits), (getattr(self, "weight_bits", 8), self.activation_bits))

    def options(self, kind: str, bits: int, function: Any, preprocess: Any) -> Options:
        """The options that a range rule knows, and the user's own functions if there are any."""
        own: dict[str, Options] = {
            "range_abs_max": {"window_size": self.window_size},
            "moving_average_abs_max": {"moving_rate": self.moving_rate},
            "channel_wise_abs_max": {"axis": 0},
            "channel_wise_learned_step": {"kind": "learned_step", "axis": 0},
        }
        custom = {"function": function, "preprocess": preprocess}
        given = {key: value for key, value in custom.items() if value is not None}
        common: Options = {"kind": kind, "bits": bits, "pass_through": self.pass_through}
        return common | own.get(kind, {}) | given
