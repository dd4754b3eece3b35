"""A quantized layer as calibration sees it: weight, quantizer, batch norm, and how to write it as a matrix product."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, fx, nn

from quaver.graph.nodes import argument, facts, is_fake_quant, is_stored, packet, quantizer_of
from quaver.graph.patterns import foldable_batch_norm, two
from quaver.program import EVAL, Program
from quaver.program.views import read
from quaver.quantizers import CustomQuantizer, Quantizer


@dataclass(frozen=True)
class CalibratedLayer:
    """An op with a quantized weight. ``norm`` is the batch norm that will be folded into it."""

    node: fx.Node
    weight: nn.Parameter
    quantizer: Quantizer
    norm: fx.Node | None

    @property
    def source(self) -> fx.Node:
        """The tensor that it computes on."""
        return self.node.args[0]  # type: ignore[return-value]

    @property
    def groups(self) -> int:
        """How many parts of the channels it treats apart."""
        return int(argument(self.node, "groups", 1)) if packet(self.node) == "conv2d" else 1

    @property
    def is_product(self) -> bool:
        """Whether `columns` knows how to write it as a matrix product."""
        if packet(self.node) == "linear":
            return True
        return packet(self.node) == "conv2d" and not isinstance(argument(self.node, "padding"), str)

    def columns(self, x: Tensor) -> Tensor:
        """What each output is a product with, (groups, inputs of an output, outputs): the weight's rows times it."""
        if packet(self.node) == "linear":
            return x.flatten(0, -2).T[None]
        dilation, padding, stride = (tuple(two(argument(self.node, name))) for name in ("dilation", "padding", "stride"))
        inputs = F.unfold(x, self.weight.shape[2:], dilation, padding, stride)  # images, inputs, positions
        return self._in_groups(inputs)

    def rows(self, y: Tensor) -> Tensor:
        """The outputs in the same order, (groups, outputs of a group, positions)."""
        if packet(self.node) == "linear":
            return y.flatten(0, -2).T[None]
        return self._in_groups(y.flatten(2))

    def _in_groups(self, x: Tensor) -> Tensor:
        """(images, channels, positions) as (groups, channels of a group, positions of all images)."""
        images, channels, positions = x.shape
        return x.view(images, self.groups, channels // self.groups, positions).permute(1, 2, 0, 3).flatten(2)

    def in_groups(self, weight: Tensor) -> Tensor:
        """A weight as (groups, outputs of a group, inputs of an output)."""
        return weight.reshape(self.groups, len(weight) // self.groups, -1)


def layers_of(program: Program) -> Iterator[CalibratedLayer]:
    """Every op whose weight has a quantizer of ours, and is nobody else's."""
    for node in program.graphs[EVAL].nodes:
        if not (reads_weight(node) and is_fake_quant(node.args[1])):
            continue
        given: Any = node.args[1]
        weight, quantizer = read(program, str(given.args[0].target)), program.quantizer(quantizer_of(given))
        is_plain = not isinstance(quantizer, CustomQuantizer) and quantizer.preprocess is None
        if is_plain and len(given.users) == 1 and len(readers(program, weight)) == 1:
            yield CalibratedLayer(node, weight, quantizer, foldable_batch_norm(node))


def reads_weight(node: fx.Node) -> bool:
    """Whether an op multiplies what it is given with a tensor of the model, quantized or not."""
    if not facts(node).has_weight:
        return False
    weight: Any = node.args[1]
    return is_stored(weight.args[0] if is_fake_quant(weight) else weight)


def readers(program: Program, tensor: Tensor) -> list[fx.Node]:
    """All that read a tensor of the model, under whatever name."""
    nodes = [node for node in program.graphs[EVAL].nodes if node.op == "get_attr"]
    return [user for node in nodes if read(program, str(node.target)) is tensor for user in node.users]


def own_tensor(program: Program, node: fx.Node, name: str) -> Tensor | None:
    """The tensor of the model that an op takes by this name, if the op alone reads it."""
    stored = argument(node, name)
    if not is_stored(stored):
        return None
    tensor: Tensor = read(program, str(stored.target))
    return tensor if readers(program, tensor) == [node] else None
