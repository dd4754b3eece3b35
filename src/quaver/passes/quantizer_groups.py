"""Which tensors share a quantizer, and where it comes from."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain

from torch import Tensor, fx

from quaver.graph.nodes import argument, op_of, ops_by_name, results
from quaver.operators import activation_inputs, channel_axis, moves_values
from quaver.program import OpPlan, Program
from quaver.program.placements import Options
from quaver.quantizers import PACT, Quantizer
from quaver.quantizers.make import make, make_for_weight

Plan = dict[str, OpPlan]
Read = tuple[fx.Node, int, fx.Node]
"""An op that reads a tensor rounded, at which of its inputs, and the tensor."""


@dataclass
class Group:
    """Tensors that share a quantizer: the computed ones, those only moved onto their grid and by which op, and who reads."""

    sources: list[fx.Node]
    moved: dict[fx.Node, str]
    reads: list[Read]


def planned_reads(graph: fx.Graph, plan: Plan) -> dict[fx.Node, list[Read]]:
    """Who is planned to read which tensor rounded, in graph order."""
    reads: dict[fx.Node, list[Read]] = defaultdict(list)
    for name, node in ops_by_name(graph).items():
        if name in plan:
            inputs = activation_inputs(node)
            for position in plan[name].inputs:
                reads[inputs[position]].append((node, position, inputs[position]))
    return reads


@dataclass(frozen=True)
class QuantizerSource:
    """Makes quantizers from a plan's options, or takes those that an earlier pass made from the same and placed there."""

    program: Program

    def groups(self, graph: fx.Graph, plan: Plan) -> list[Group]:
        """The planned tensors in graph order; what ops that only move values read and give is one group: no op rescales."""
        reads = planned_reads(graph, plan)
        moved: dict[fx.Node, str] = {}
        leader: dict[fx.Node, fx.Node] = {}

        def find(node: fx.Node) -> fx.Node:
            while leader.setdefault(node, node) is not node:
                leader[node] = leader[leader[node]]
                node = leader[node]
            return node

        for node, _, tensor in chain(*reads.values()):
            find(tensor)
            for result in results(node) if moves_values(node) else ():
                moved[result] = op_of(node).name
                leader[find(result)] = find(tensor)
        members: dict[fx.Node, list[fx.Node]] = defaultdict(list)
        for node in graph.nodes:
            if node in leader:
                members[find(node)].append(node)
        return [
            Group(
                [tensor for tensor in tensors if tensor not in moved],
                {tensor: moved[tensor] for tensor in tensors if tensor in moved},
                [read for tensor in tensors for read in reads[tensor]],
            )
            for tensors in members.values()
        ]

    def weight_title(self, parameter: str, node: fx.Node, wanted: Options, placed: dict[str, Quantizer]) -> str:
        """The parameter's own name, and another where it is used along two axes."""
        known, axis = placed.get(parameter), channel_axis(op_of(node).type)
        return parameter if known is None or known.axis in (None, axis) else f"{parameter}_axis{axis % 2}"

    def of_weight(self, title: str, weight: Tensor, node: fx.Node, wanted: Options) -> Quantizer:
        """A quantizer with the op's channel axis, and the range of the weight as it is."""
        groups = argument(node, "groups", 1)
        return make_for_weight(title, wanted, weight, op_of(node).type, groups, self.quantizer)

    def of_group(self, title: str, group: Group, wanted: list[Options], signed: bool) -> Quantizer:
        """As the first reader wants it, unless another wants more bits."""
        options = max(wanted, key=lambda options: options["bits"])
        return self.quantizer(title, options | {"signed": signed, "narrow": False, "tensors": len(group.sources)})

    def quantizer(self, title: str, options: Options) -> Quantizer:
        """A new quantizer, or the one that an earlier pass placed there with the same options."""
        device = next((parameter.device for parameter in self.program.parameters()), None)
        module = make(title, options).to(device).train(self.program.training)
        if title in self.program.placements.quantizers:
            placed = self.program.quantizer(title)
            same = all(ours is theirs for ours, theirs in zip(module.made_of, placed.made_of, strict=True))
            if (same or isinstance(module.preprocess, PACT)) and placed.options() == module.options():
                return placed
        return module
