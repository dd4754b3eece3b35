"""A pass of the compiler: ranges behind a batch norm from what the batch norm reads anyway.

A range is the smallest and largest value of a tensor and must be known before the first value is rounded, which takes one
more pass over every activation. Behind a batch norm it need not: normalizing, a ReLU and a change of type keep a channel's
values in order, or turn the order around, so the largest result is that of the channel's smallest or largest input, bit for
bit. These two the compiler finds in the same pass over a convolution's output as mean and variance.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

aten = torch.ops.aten
CAST = torch.ops.prims.convert_element_type.default
# Elementwise, and with a channel's values in their order or the reverse.
MONOTONE = (
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.relu.default,
    aten.clamp_min.default,
    aten.clamp_max.default,
    CAST,
)
# The extreme of a whole tensor, and that of two.
EXTREMES: dict[Any, Any] = {aten.amin.default: aten.minimum.default, aten.amax.default: aten.maximum.default}


class RangesBesideStatistics(CustomGraphPass):
    """``amax(f(x))`` becomes ``amax(maximum(f(least), f(largest)))`` of each channel, where x has batch statistics."""

    def __call__(self, graph: fx.Graph) -> None:
        """Rewrite a graph as the compiler has it after decomposition."""
        extremes: dict[fx.Node, list[fx.Node]] = {}
        for node in list(graph.nodes):
            if node.target in EXTREMES and len(node.args) == 1:
                steps = _since_statistics(node.args[0])
                if steps:
                    self._read_extremes(node, steps, extremes)

    def uuid(self) -> bytes:
        """For the compiler's cache: what this file says."""
        return get_hash_for_files((__file__,))

    @staticmethod
    def _read_extremes(extreme: fx.Node, steps: list[fx.Node], extremes: dict[fx.Node, list[fx.Node]]) -> None:
        """Follow the least and the largest of each channel along the steps, and look at nothing else."""
        graph, source = extreme.graph, steps[0]
        with graph.inserting_before(extreme):
            if source not in extremes:
                apart = (source, _others_than_channels(source), True)
                extremes[source] = [graph.call_function(find, apart) for find in EXTREMES]
            for before, step in pairwise(steps):
                if step not in extremes:
                    extremes[step] = [_at(end, step, before) for end in extremes[before]]
            extreme.args = (graph.call_function(EXTREMES[extreme.target], tuple(extremes[steps[-1]])),)


def _at(end: fx.Node, step: fx.Node, before: fx.Node) -> fx.Node:
    """A step once more, with ``end`` in place of what was before it."""
    return step.graph.node_copy(step, lambda operand: end if operand is before else operand)


def _since_statistics(value: fx.Node) -> list[fx.Node]:
    """The nearest tensor with batch statistics and the steps from there to ``value``; nothing where one is not monotone."""
    steps = [value]
    while not _has_statistics(steps[0]):
        operands = [operand for operand in steps[0].args if isinstance(operand, fx.Node)]
        whole = [operand for operand in operands if not _one_per_channel(operand, steps[0])]
        if steps[0].target not in MONOTONE or len(whole) != 1:
            return []
        steps.insert(0, whole[0])
    return steps


def _has_statistics(value: fx.Node) -> bool:
    readers = [reader for user in value.users for reader in (user.users if user.target is CAST else [user])]
    variances = [reader for reader in readers if reader.target is aten.var_mean.correction]
    return any(reader.args[1] == _others_than_channels(value) for reader in variances)


def _others_than_channels(value: fx.Node) -> list[int]:
    return [0, *range(2, value.meta["val"].dim())]


def _one_per_channel(operand: fx.Node, result: fx.Node) -> bool:
    """Whether an operand has one value for each channel of the result, or one for all."""
    shape, rank = operand.meta["val"].shape, result.meta["val"].dim()
    aligned = [1] * (rank - len(shape)) + list(shape)
    return all(isinstance(size, int) and size == 1 for axis, size in enumerate(aligned) if axis != 1)
