"""Questions that both quantizing passes ask of an op."""

from collections.abc import Iterable
from typing import Any, Protocol

from torch import fx

from quaver.operators import packet
from quaver.program import Op

_FUSED = frozenset({"conv1d", "conv2d", "conv_transpose2d", "linear", "batch_norm"})


def skipped_by(op: Op, patterns: str | Iterable[str]) -> str:
    """Why a skip pattern keeps the op float, or nothing."""
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        if pattern in op.scope:
            return f"its scope {op.scope!r} contains the skip pattern {pattern!r}"
    return ""


def is_float(tensors: list[fx.Node]) -> bool:
    """Whether there are tensors, all of them floating-point as far as is known."""
    dtypes = [tensor.meta.get("dtype") for tensor in tensors]
    return bool(tensors) and all(dtype is None or dtype.is_floating_point for dtype in dtypes)


def ends_convolution(node: fx.Node) -> bool:
    """Whether a tensor comes straight out of a convolution (and its batch norm) and nobody else reads it."""
    if node.op != "call_function" or len(node.users) != 1 or packet(node) not in _FUSED:
        return False
    return packet(node) != "batch_norm" or ends_convolution(node.args[0])  # type: ignore[arg-type]


class RangeOptions(Protocol):
    """What both passes say about ranges."""

    @property
    def window_size(self) -> int: ...
    @property
    def moving_rate(self) -> float: ...
    @property
    def pass_through(self) -> bool: ...


def quantizer_options(said: RangeOptions, kind: str, bits: int, function: Any, preprocess: Any) -> dict[str, Any]:
    """What a quantizer is made from: the options its range rule knows, and the user's own functions if there are any."""
    own = {"range_abs_max": {"window_size": said.window_size}, "moving_average_abs_max": {"moving_rate": said.moving_rate}}
    custom = {"function": function, "preprocess": preprocess}
    given = {key: value for key, value in custom.items() if value is not None}
    return {"kind": kind, "bits": bits, "pass_through": said.pass_through} | own.get(kind, {}) | given
