"""Graphs made by hand, a handful of nodes each: what a pass makes of a pattern can be seen without capturing a model."""

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from quaver.graph.annotation import notes_of
from quaver.graph.copying import copy_graph
from quaver.graph.nodes import Op, type_of
from quaver.program import EVAL, TRAIN, InputTensor, OpPlan, Program, Signature

aten = torch.ops.aten
WEIGHT = {"kind": "channel_wise_abs_max", "bits": 8, "axis": 0}
INPUT = {"kind": "moving_average_abs_max", "bits": 8}


class HandMade:
    """A graph that grows by a node per call; each node has the notes that a capture would leave.

    >>> made = HandMade()
    >>> x = made.input("x", 1, 3, 8, 8)
    >>> conv = made.op("conv", aten.conv2d.default, x, made.parameter("conv.weight", 4, 3, 3, 3))
    >>> made.types[conv]
    'conv2d'
    """

    def __init__(self):
        self.graph, self.tensors = fx.Graph(), nn.Module()
        self.values = {}  # of each node, which tell its rank
        self.types = {}
        self.inputs = []

    def input(self, name, *shape):
        self.inputs.append(InputTensor(name, (None, *shape[1:]), torch.float32))
        return self._noted(self.graph.placeholder(name), torch.zeros(shape))

    def parameter(self, path, *shape):
        """A node that reads a parameter of ones; the same node for the same path."""
        for node in self.graph.find_nodes(op="get_attr", target=path):
            return node
        *parents, leaf = path.split(".")
        module = self.tensors
        for name in parents:
            if not hasattr(module, name):
                module.add_module(name, nn.Module())
            module = getattr(module, name)
        module.register_parameter(leaf, nn.Parameter(torch.ones(shape)))
        return self._noted(self.graph.get_attr(path), torch.ones(shape))

    def op(self, name, target, *args, **kwargs):
        """An op of the model, of the type that `quaver.operators` says it is."""
        node = self.call(target, *args, **kwargs)
        weight = self.values.get(args[1]) if len(args) > 1 and isinstance(args[1], fx.Node) else None
        self.types[node] = type_of(node, None if weight is None else tuple(weight.shape))
        node.meta["op"] = Op(name, self.types[node], name, "by hand")
        return node

    def call(self, target, *args, **kwargs):
        """A call that is no op to the model's author."""
        given = pytree.tree_map_only(fx.Node, self.values.__getitem__, (args, kwargs))
        return self._noted(self.graph.call_function(target, args, kwargs), target(*given[0], **given[1]))

    def program(self, *outputs):
        """A program whose training and evaluation graphs are both this one."""
        self.graph.output(outputs)
        _, in_spec = pytree.tree_flatten(((None,) * len(self.inputs), {}))
        _, out_spec = pytree.tree_flatten((None,) * len(outputs))
        signature = Signature(tuple(self.inputs), in_spec, {EVAL: out_spec, TRAIN: out_spec})
        return Program(self.tensors, {mode: copy_graph(self.graph) for mode in (TRAIN, EVAL)}, signature)

    def _noted(self, node, value):
        self.values[node] = value
        if isinstance(value, torch.Tensor):
            node.meta |= notes_of(value)
        return node


def stored(graph, rank=4):
    """A weight of a bare graph."""
    node = graph.get_attr("weight")
    node.meta = {"rank": rank}
    return node


def weighted():
    """The plan for an op with a weight: that, and its input."""
    return OpPlan(dict(WEIGHT), {0: dict(INPUT)})


def reading(*positions, **options):
    """The plan for an op that only has inputs."""
    return OpPlan(None, dict.fromkeys(positions, INPUT | options))
