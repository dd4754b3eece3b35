"""Stateful ops: batch norms and dropouts that ask their modules for mode, momentum, eps and p while they run.

A captured graph has these as numbers. Whoever sets them on a module of the program means the program, as in any training
loop: ``bn.eval()``, ``bn.momentum = 0.01``, ``dropout.p = 0.3``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from quaver.graph.nodes import argument, calls, modules_in, packet
from quaver.program.synced_batch_norm import synced_batch_norm

TRAINING = 5  # the position of ``training`` among the arguments of aten.batch_norm
EPS = 7  # that of ``eps``
COUNTED = "_quaver_counted"  # among the attributes of a batch norm that has counted the batch that comes


def stateful_nodes(root: nn.Module, *graphs: fx.Graph) -> list[tuple[fx.Node, str, Any]]:
    """The batch norms and dropouts of graphs: the node, its module's path, and the module."""
    noted = [item for graph in graphs for item in modules_in(graph).items()]
    if not noted:
        return []
    # a frozen program has no modules but those that hold its tensors
    modules = dict(root.named_modules(remove_duplicate=False))
    return [(node, path, modules[path]) for node, path in noted if isinstance(modules.get(path), _BatchNorm | _DropoutNd)]


def is_training(node: fx.Node) -> bool:
    """Whether a batch norm or dropout of the training graph is in training mode there."""
    if node.target is synced_batch_norm:
        return True
    return bool(argument(node, "train" if "dropout" in packet(node) else "training", True))


def settle_eps(root: nn.Module, *graphs: fx.Graph) -> None:
    """Write the eps that batch norms have now into graphs."""
    for node, _, module in stateful_nodes(root, *graphs):
        if calls(node, "batch_norm") and argument(node, "eps") != module.eps:
            node.update_arg(EPS, module.eps)


def ask_eps(root: nn.Module, graph: fx.Graph) -> None:
    """Let the batch norms of an evaluation graph read eps from their modules: all else is fixed there."""
    start = next(iter(graph.nodes))
    for node, path, module in stateful_nodes(root, graph):
        if isinstance(module, _BatchNorm):
            with graph.inserting_before(start):  # where a convolution in front can read it, too
                node.update_arg(EPS, graph.call_function(getattr, (graph.get_attr(path), "eps")))


def ask_modules(root: nn.Module, graph: fx.Graph) -> None:
    """Let the batch norms and dropouts of a training graph read their modules."""
    counted = set()
    for node, path, _ in stateful_nodes(root, graph):
        with graph.inserting_before(node):
            module = graph.get_attr(path)
            if "dropout" in packet(node):
                asking = graph.call_function(dropout, (module, node.target, node.args[0]))  # type: ignore[arg-type]
            else:
                names = ("input", "weight", "bias", "running_mean", "running_var", "cudnn_enabled")
                synced = node.target is synced_batch_norm
                given = node.args[:5] if synced else tuple(argument(node, name) for name in names)
                asking = graph.call_function(batch_norm, (module, *given, *([True, True] if synced else [])))
                counted.add(f"{path}.num_batches_tracked")
        asking.meta = dict(node.meta)
        node.replace_all_uses_with(asking)
        graph.erase_node(node)
    for node in reversed(list(graph.nodes)):
        if counter_of(node) in counted and not node.users:
            graph.erase_node(node)  # the module counts its batches


def counter_of(node: Any) -> str:
    """The counter of batches that a node adds to, if it does; of a module that is called twice, the first does, too."""
    written = node
    while calls(written, "add_"):
        written = written.args[0]
    is_counter = written is not node and written.op == "get_attr" and written.target.endswith("num_batches_tracked")
    return str(written.target) if is_counter else ""


def counting_nodes(graph: fx.Graph) -> list[fx.Node]:
    """The modules that batch norms of a training graph ask, and no other does."""
    asked = Counter(node.args[0] for node in graph.nodes if node.target is batch_norm)
    paths = Counter(str(module.target) for module in asked)  # type: ignore[union-attr]
    return [module for module, times in asked.items() if times == 1 and paths[str(module.target)] == 1]  # type: ignore[misc,union-attr]


@contextmanager
def counted_together(modules: Iterable[Any]) -> Iterator[None]:
    """Add a batch to the counters of batch norms at once: by themselves, each of these numbers is a launch."""
    training = [module for module in modules if module.training and module.track_running_stats]
    counting = [module for module in training if module._buffers["num_batches_tracked"] is not None]
    if counting:
        torch._foreach_add_([module._buffers["num_batches_tracked"] for module in counting], 1)
    for module in counting:
        module.__dict__[COUNTED] = True
    try:
        yield
    finally:
        for module in counting:
            module.__dict__.pop(COUNTED, None)


def batch_norm(
    module: Any,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    cudnn_enabled: bool = True,
    synced: bool = False,
) -> Tensor:
    """What ``nn.BatchNorm2d.forward`` computes, in the module's mode and with its settings of now.

    ``synced``: by the statistics of all processes, which an ``nn.SyncBatchNorm`` is, too.
    """
    momentum = module.momentum or 0.0
    if module.training and module.track_running_stats and module.num_batches_tracked is not None:
        if not module.__dict__.pop(COUNTED, False):
            module.num_batches_tracked.add_(1)
        if module.momentum is None:  # each batch counts the same
            momentum = 1.0 / float(module.num_batches_tracked)
    by_batch = module.training or (mean is None and var is None)
    if module.training and not module.track_running_stats:
        mean = var = None
    if module.training and (synced or _spans_processes(module)):
        group = None if synced else module.process_group
        return synced_batch_norm(x, weight, bias, mean, var, momentum, module.eps, group)
    return torch.batch_norm(x, weight, bias, mean, var, by_batch, momentum, module.eps, cudnn_enabled)


def _spans_processes(module: Any) -> bool:
    if not (isinstance(module, nn.SyncBatchNorm) and distributed.is_available() and distributed.is_initialized()):
        return False
    return distributed.get_world_size(module.process_group) > 1


def dropout(module: Any, op: Any, x: Tensor) -> Tensor:
    """What ``nn.Dropout.forward`` computes, in the module's mode and with its p of now."""
    return op(x, module.p, module.training)  # type: ignore[no-any-return]
