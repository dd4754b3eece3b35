"""What nodes do together: patterns that passes, lowerings and writers look for."""

from typing import Any

from torch import fx

from quaver.graph.nodes import argument, is_dequantize, is_quantize, packet, rank_of
from quaver.operators import clamp_bounds, facts, moves_values


def foldable_batch_norm(node: fx.Node) -> fx.Node | None:
    """The batch norm that a convolution or linear layer can do by itself: the only reader of its output."""
    if len(node.users) != 1:
        return None
    (reader,) = node.users
    if reader.op != "call_function" or packet(reader) != "batch_norm":
        return None
    if argument(reader, "running_mean") is None or argument(reader, "training"):
        return None  # it normalizes by the batch at hand
    if packet(node) == "linear" and rank_of(node) not in (None, 2):
        return None  # a batch norm of (N, L, C) normalizes L, a linear layer's channels are C
    if packet(node) == "conv_transpose2d" and argument(node, "groups") != 1:
        return None  # its groups share the weight's steps, and batch norm has one per output channel
    return reader


def is_rounded(node: fx.Node) -> bool:
    """Whether an op's result is quantized, behind a clamp at most, and not read otherwise."""
    if len(node.users) != 1:
        return False
    (reader,) = node.users
    if clamp_bounds(reader) is not None and len(reader.users) == 1:
        (reader,) = reader.users
    return is_quantize(reader)


def two(sizes: Any) -> list[int]:
    """Height and width, which may be given as one number."""
    values = [sizes] if isinstance(sizes, int) else list(sizes)
    return values * 2 if len(values) == 1 else values


def moves(node: fx.Node) -> bool:
    """Whether an op moves or selects values and computes none."""
    return moves_values(node) or facts(node).kind == "pad" or packet(node) == "stack"


def on_integers(node: fx.Node) -> bool:
    """Whether an op's first operands, as many as it has of two, are quantized: a product's, both factors of it."""
    return all(is_dequantize(value) for value in node.args[:2] if isinstance(value, fx.Node))
