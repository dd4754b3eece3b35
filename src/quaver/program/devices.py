"""Let a graph create its tensors where its input is, instead of where the example was."""

import torch
from torch import Tensor, fx


def device_of(x: Tensor) -> torch.device:
    """The device a tensor is on, as a node of a graph."""
    return x.device


def follow_input(graph: fx.Graph) -> None:
    """Replace every device that was written down while tracing by that of the first input."""
    fixed = [node for node in graph.nodes if node.op == "call_function" and _names_device(node)]
    if not fixed:
        return
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_before(inputs[-1].next):
        current = graph.call_function(device_of, (inputs[0],))
    for node in fixed:
        node.args = tuple(current if isinstance(arg, torch.device) else arg for arg in node.args)
        node.kwargs = {key: current if isinstance(arg, torch.device) else arg for key, arg in node.kwargs.items()}


def _names_device(node: fx.Node) -> bool:
    return any(isinstance(arg, torch.device) for arg in (*node.args, *node.kwargs.values()))
