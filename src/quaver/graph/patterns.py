"""What nodes do together: patterns that passes, lowerings and writers look for."""

import math
from collections.abc import Iterable
from itertools import filterfalse
from typing import Any, NamedTuple

from torch import fx

from quaver.graph.nodes import (
    Facts,
    activation_inputs,
    argument,
    axis_of,
    calls,
    clamp_bounds,
    depends_on_input,
    facts,
    facts_in,
    is_parameter,
    is_quantize,
    ops_in,
    packet,
    rank_of,
    reads_parameter,
    shares_steps,
    stored_weight,
)


def foldable_batch_norm(node: fx.Node) -> fx.Node | None:
    """The batch norm that a convolution or linear layer can do by itself: the only reader of its output."""
    if len(node.users) != 1:
        return None
    (reader,) = node.users
    if not _is_fixed_norm(reader):
        return None
    if packet(node) == "linear" and rank_of(node) not in (None, 2):
        return None  # a batch norm of (N, L, C) normalizes L, a linear layer's channels are C
    return None if shares_steps(node) else reader


def _is_fixed_norm(node: fx.Node) -> bool:
    """Whether a node is a batch norm that is a product and a sum: by fixed statistics, with a scale and shift of its own."""
    if not calls(node, "batch_norm") or argument(node, "running_mean") is None or argument(node, "training"):
        return False
    return not (depends_on_input(argument(node, "weight")) or depends_on_input(argument(node, "bias")))


class ConstantAffine(NamedTuple):
    """A product or a sum of a tensor and a constant: a number, or a node whose tensor does not depend on the input."""

    tensor: fx.Node
    constant: fx.Node | float
    type: str


def affine(node: fx.Node) -> ConstantAffine | None:
    """What a node multiplies with a constant, or adds one to; None for any other op."""
    if not calls(node, "mul", "add") or node.kwargs:
        return None
    for place in (0, 1):
        tensor, constant = node.args[place], node.args[1 - place]
        if depends_on_input(tensor) and (is_parameter(constant) or _is_number(constant)):
            return ConstantAffine(tensor, constant, packet(node))  # type: ignore[arg-type]
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def folded_behind(layer: fx.Node) -> list[fx.Node]:
    """What a convolution or linear layer can do by itself of what follows, in order: each is the only reader of the last.

    A batch norm, and products and sums with a constant per channel: a frozen batch norm, a layer scale.
    """
    if len(layer.users) != 1 or not calls(next(iter(layer.users)), "batch_norm", "mul", "add"):
        return []
    folded = [norm] if (norm := foldable_batch_norm(layer)) is not None else []
    last = folded[-1] if folded else layer
    while len(last.users) == 1 and _is_per_channel(next(iter(last.users)), layer):
        (last,) = last.users
        folded.append(last)
    return folded


def _is_per_channel(node: fx.Node, layer: fx.Node) -> bool:
    """Whether a node is a product or a sum with a constant for each of a layer's channels, or one for all."""
    step, rank = affine(node), rank_of(layer)
    if step is None or rank is None or not facts(layer).is_layer or shares_steps(layer):
        return False
    if not isinstance(step.constant, fx.Node):
        return True
    axis, own, channels = axis_of(step.constant), rank_of(step.constant), facts(layer).weight.output_axis
    return axis in (0, channels if channels < 0 else channels - rank) and own is not None and own <= rank


def scale_of_attention(product: fx.Node) -> fx.Node | None:
    """What multiplies a product of queries and keys by a number, in front of a softmax and the product with the values.

    OpenVINO multiplies the keys by it. None where a node is no such product.
    """
    if not calls(product, "matmul", "bmm") or len(product.users) != 1:
        return None
    (scale,) = product.users
    step = affine(scale)
    if step is None or step.type != "mul" or not _is_number(step.constant) or len(scale.users) != 1:
        return None
    (reader,) = scale.users
    if calls(reader, "add") and len(reader.users) == 1:
        (reader,) = reader.users
    readers = list(reader.users) if calls(reader, "softmax") else []
    return scale if len(readers) == 1 and calls(readers[0], "matmul", "bmm") else None


class RoundedNorm(NamedTuple):
    """A batch norm, or products and sums with a constant per channel, between a tensor and an op that rounds: in order."""

    tensor: fx.Node
    steps: list[fx.Node]


def rounded_norm(rounded: Any, is_signed: bool) -> RoundedNorm | None:
    """What stands in front of a rounding, for it alone, behind a ReLU at most, which a grid without signs does anyway.

    None where nothing does, or where a layer does it by itself.
    """
    node = rounded
    if facts(node).type == "relu" and len(node.users) == 1 and not is_signed:
        node = node.args[0]
    if not calls(node, "batch_norm", "mul", "add"):
        return None
    steps: list[fx.Node] = []
    if len(node.users) == 1 and _is_fixed_norm(node):
        steps, node = [node], node.args[0]
    while not (steps and calls(steps[0], "batch_norm")) and len(node.users) == 1 and _is_per_second_axis(node):
        steps, node = [node, *steps], affine(node).tensor  # type: ignore[union-attr]
    by_layer = facts(node).is_layer and (facts(node).kind == "linear" or not set(steps).isdisjoint(folded_behind(node)))
    return RoundedNorm(node, steps) if steps and not by_layer else None


def _is_per_second_axis(node: fx.Node) -> bool:
    """Whether a node is a product or a sum with a constant for each channel of images, or one for all."""
    step, rank = affine(node), rank_of(node)
    if step is None or rank is None or rank_of(step.tensor) != rank:
        return False
    return not isinstance(step.constant, fx.Node) or axis_of(step.constant) in (0, 1 - rank)


def fused_output(node: fx.Node) -> fx.Node:
    """The tensor that every engine writes for an op: behind what it does by itself, and behind a clamp such as ReLU."""
    return behind_clamp((folded_behind(node) or [node])[-1])


def behind_clamp(node: fx.Node) -> fx.Node:
    """The clamp that reads a node, if it alone does; else the node itself."""
    reader = next(iter(node.users)) if len(node.users) == 1 else None
    return node if facts(reader).bounds is None else reader  # type: ignore[return-value]


def is_rounded(node: fx.Node) -> bool:
    """Whether an op's result is quantized, behind a clamp at most, and not read otherwise."""
    if len(node.users) != 1:
        return False
    (reader,) = node.users
    if clamp_bounds(reader) is not None and len(reader.users) == 1:
        (reader,) = reader.users
    return is_quantize(reader)


def on_integers(node: fx.Node, facts: Facts) -> bool:
    """Whether an op's first operands, as many as it has of two, are quantized: a product's, both factors of it."""
    return all(facts[value].kind == "dequantize" for value in node.args[:2] if isinstance(value, fx.Node))


class IntegerLayer(NamedTuple):
    """A layer that multiplies integers: its op's name and type, where its weight is stored, and its groups."""

    name: str
    type: str
    weight: str
    groups: int


def integer_layers(graph: fx.Graph) -> list[IntegerLayer]:
    """Those of a frozen graph; a weight that the model computes is stored nowhere."""
    facts = facts_in(graph)
    layers = [op for op in ops_in(graph).values() if op.facts.is_layer and on_integers(op.node, facts)]
    weights: list[Any] = [op.node.args[1] for op in layers]
    return [
        IntegerLayer(op.name, op.type, str(stored_weight(weight).target), argument(op.node, "groups", 1))
        for op, weight in zip(layers, weights, strict=True)
        if facts[weight.args[0]].kind != "quantize"
    ]


def ends_layer(node: Any) -> bool:
    """Whether a tensor comes out of a layer (its batch norm, its activation) and nobody else reads it."""
    steps: set[fx.Node] = set()  # to be done by the layer itself
    while len(node.users) == 1:
        if (step := affine(node)) is not None:
            steps.add(node)
            node = step.tensor
        elif facts(node).fused or calls(node, "batch_norm"):
            node = node.args[0]
        else:
            break
    return len(node.users) == 1 and facts(node).is_layer and steps.issubset(folded_behind(node))


def never_negative(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Those of the nodes whose tensors cannot be negative, whatever the input."""
    asked, answers = list(nodes), dict[fx.Node, bool]()
    waiting = list(asked)
    while waiting:
        node = waiting[-1]
        op, (floor, _) = facts(node), clamp_bounds(node) or (-math.inf, math.inf)
        inputs = activation_inputs(node) if op.keeps_sign else []
        unanswered = list(filterfalse(answers.__contains__, inputs))
        if unanswered:
            waiting += unanswered
            continue
        waiting.pop()
        # a number or a parameter may be negative, and so may what is added alpha times
        plain = len(inputs) >= max(op.operands, 1) and not reads_parameter(node) and "alpha" not in node.kwargs
        answers[node] = op.never_negative or floor >= 0 or (plain and all(answers[value] for value in inputs))
    return {node for node in asked if answers[node]}


def pool_window(node: fx.Node) -> tuple[list[int], list[int], list[int]]:
    """Kernel, stride and padding of a pool."""
    kernel = two(argument(node, "kernel_size"))
    return kernel, two(argument(node, "stride") or kernel), two(argument(node, "padding"))


def two(sizes: Any) -> list[int]:
    """Height and width, which may be given as one number."""
    values = [sizes] if isinstance(sizes, int) else list(sizes)
    return values * 2 if len(values) == 1 else values
