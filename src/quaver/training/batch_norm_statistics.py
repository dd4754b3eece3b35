"""Batch norm as training goes on: statistics of all processes, statistics that stay, statistics measured anew."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from quaver.graph.nodes import argument
from quaver.program import TRAIN, Program
from quaver.program.freeze_batch_norm import batch_norms, freeze_batch_norm
from quaver.program.stateful_ops import counter_of, stateful_nodes
from quaver.program.synced_batch_norm import synced_batch_norm
from quaver.program.views import read


def with_synced_statistics(program: Program) -> Program:
    """The program over the same tensors, normalizing in training by the batches of all processes together."""
    twin = program.clone()
    graph = twin.graphs[TRAIN]
    for node in batch_norms(graph):
        if not argument(node, "training"):
            continue
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
    freeze_batch_norm(twin)
    graph = twin.graphs[TRAIN]
    for node in reversed(list(graph.nodes)):
        if counter_of(node) and not node.users:
            graph.erase_node(node)
    return twin


@torch.no_grad()
def reestimate(program: Program, run: Callable[[Tensor], Any], batches: Iterable[Tensor]) -> int:
    """Batch-norm statistics as the mean over ``batches`` that ``run`` trains on, each counting the same; how many they were.

    Ordinary statistics lag behind: they average over weights that have changed since. ``run`` should not observe ranges.
    """
    norms = [node for node in batch_norms(program.graphs[TRAIN]) if argument(node, "training")]
    modules = {node: module for node, _, module in stateful_nodes(program, program.graphs[TRAIN])}
    momenta = {node: modules[node].momentum if node in modules else argument(node, "momentum") for node in norms}
    # of a cumulative average, the first batch has all
    parts = {node: 1.0 if momentum is None else float(momentum) for node, momentum in momenta.items()}
    kept = [(argument(node, name), parts[node]) for node in norms for name in ("running_mean", "running_var")]
    buffers = [(read(program, where.target), momentum) for where, momentum in kept if where is not None and momentum]
    cumulative = [modules[node] for node in norms if node in modules and momenta[node] is None]
    counters = [module.num_batches_tracked for module in cumulative]
    sums = [torch.zeros_like(buffer, dtype=torch.float64) for buffer, _ in buffers]
    seen = 0
    for images in batches:
        for buffer in (*(buffer for buffer, _ in buffers), *counters):
            buffer.zero_()  # from zero, a step leaves momentum · statistic of this batch
        run(images)
        for total, (buffer, momentum) in zip(sums, buffers, strict=True):
            total += buffer / momentum
        seen += 1
    for total, (buffer, _) in zip(sums, buffers, strict=True):
        if seen:
            buffer.copy_(total / seen)
    for counter in counters:
        counter.fill_(seen)
    return seen
