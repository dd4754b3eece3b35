"""Batch norm as training goes on: statistics of all processes, statistics that stay, statistics measured anew."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, fx

from quaver.graph.nodes import argument, packet
from quaver.program import TRAIN, Program
from quaver.program.views import read
from quaver.program.synced_batch_norm import synced_batch_norm

TRAINING = 5  # the position of ``training`` among the arguments of aten.batch_norm


def with_synced_statistics(program: Program) -> Program:
    """The program over the same tensors, normalizing in training by the batches of all processes together."""
    twin = program.clone()
    graph = twin.graphs[TRAIN]
    for node in _batch_norms(graph):
        names = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")
        with graph.inserting_before(node):
            synced = graph.call_function(synced_batch_norm, tuple(argument(node, name) for name in names))
        synced.meta = dict(node.meta)
        node.replace_all_uses_with(synced)
        graph.erase_node(node)
    return twin


def with_fixed_statistics(program: Program) -> Program:
    """The program over the same tensors, normalizing in training by the statistics as they are, which stay so."""
    twin = program.clone()
    graph = twin.graphs[TRAIN]
    for node in _batch_norms(graph):
        if argument(node, "running_mean") is not None:
            node.update_arg(TRAINING, False)
    for node in list(graph.nodes):
        if node.op == "call_function" and packet(node) == "add_" and _counts_batches(node) and not node.users:
            graph.erase_node(node)
    return twin


@torch.no_grad()
def reestimate(program: Program, run: Callable[[Tensor], Any], batches: Iterable[Tensor]) -> None:
    """Batch-norm statistics as the mean over ``batches`` that ``run`` trains on, each batch counting the same.

    Ordinary statistics lag behind: they average over weights that have changed since. ``run`` should not observe ranges.
    """
    norms = [node for node in _batch_norms(program.graphs[TRAIN]) if argument(node, "momentum")]
    kept = [(argument(node, name), argument(node, "momentum")) for node in norms for name in ("running_mean", "running_var")]
    buffers = [(read(program, where.target), momentum) for where, momentum in kept if where is not None]
    sums = [torch.zeros_like(buffer, dtype=torch.float64) for buffer, _ in buffers]
    seen = 0
    for images in batches:
        for buffer, _ in buffers:  # from zero, a step leaves momentum · statistic of this batch
            buffer.zero_()
        run(images)
        for total, (buffer, momentum) in zip(sums, buffers, strict=True):
            total += buffer / momentum
        seen += 1
    for total, (buffer, _) in zip(sums, buffers, strict=True):
        buffer.copy_(total / seen)


def _batch_norms(graph: fx.Graph) -> list[fx.Node]:
    """The batch norms that look at the batch at hand."""
    norms = [node for node in graph.nodes if node.op == "call_function" and packet(node) == "batch_norm"]
    return [node for node in norms if argument(node, "training")]


def _counts_batches(node: fx.Node) -> bool:
    counter = node.args[0]
    return isinstance(counter, fx.Node) and counter.op == "get_attr" and str(counter.target).endswith("num_batches_tracked")
