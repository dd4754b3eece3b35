"""Which tensors share a quantizer, and where it comes from."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate, chain

from torch import Tensor, fx

from quaver.graph.nodes import OpNode, argument, results
from quaver.program import OpPlan, Program
from quaver.program.placements import Options
from quaver.quantizers import PACT, Quantizer
from quaver.quantizers.make import make, make_for_weight

Plan = dict[str, OpPlan]
Read = tuple[OpNode, int, fx.Node]
"""An op that reads a tensor rounded, at which of its inputs, and the tensor."""


@dataclass
class Group:
    """Tensors that share a quantizer: the computed ones, those only moved onto their grid and by which op, and who reads."""

    sources: list[fx.Node]
    moved: dict[fx.Node, str]
    reads: list[Read]


def planned_reads(ops: dict[str, OpNode], plan: Plan) -> dict[fx.Node, list[Read]]:
    """Who is planned to read which tensor rounded, in graph order."""
    reads: dict[fx.Node, list[Read]] = defaultdict(list)
    for name, op in ops.items():
        for position in plan[name].inputs if name in plan else ():
            reads[op.inputs[position]].append((op, position, op.inputs[position]))
    return reads


class QuantizersByName(dict[str, Quantizer]):
    """Quantizers by the names of their tensors, which are the paths that they stand at: none on the way to another."""

    def __init__(self) -> None:
        super().__init__()
        self._ways: set[str] = set()

    def __setitem__(self, name: str, quantizer: Quantizer) -> None:
        super().__setitem__(name, quantizer)
        self._ways.update(_way_to(name))

    def free_name(self, name: str) -> str:
        """``name``, or one like it: no quantizer stands at this path, or on the way to it, or behind it."""
        while name in self._ways or any(path in self for path in _way_to(name)):
            name += "_"
        return name


def _way_to(name: str) -> list[str]:
    """``a``, ``a.b`` and ``a.b.c`` for ``a.b.c``."""
    return list(accumulate(name.split("."), "{}.{}".format))


@dataclass(frozen=True)
class QuantizerSource:
    """Makes quantizers from a plan's options, or takes those that an earlier pass made from the same and placed there."""

    program: Program

    def groups(self, ops: dict[str, OpNode], plan: Plan) -> list[Group]:
        """The planned tensors in graph order; what ops that only move values read and give is one group: no op rescales."""
        reads = planned_reads(ops, plan)
        moved: dict[fx.Node, str] = {}
        leader: dict[fx.Node, fx.Node] = {}

        def find(node: fx.Node) -> fx.Node:
            while leader.setdefault(node, node) is not node:
                leader[node] = leader[leader[node]]
                node = leader[node]
            return node

        for op, _, tensor in chain(*reads.values()):
            find(tensor)
            for result in results(op.node) if op.facts.kind == "move" else ():
                moved[result] = op.name
                leader[find(result)] = find(tensor)
        members: dict[fx.Node, list[fx.Node]] = defaultdict(list)
        for node in sorted(leader):
            members[find(node)].append(node)
        return [
            Group(
                [tensor for tensor in tensors if tensor not in moved],
                {tensor: moved[tensor] for tensor in tensors if tensor in moved},
                [read for tensor in tensors for read in reads[tensor]],
            )
            for tensors in members.values()
        ]

    def weight_title(self, parameter: str, op: OpNode, wanted: Options, placed: QuantizersByName) -> str:
        """The parameter's own name, and another where it is used along two axes."""
        other, axis = placed.get(parameter), op.facts.weight.channel_axis
        return parameter if other is None or other.axis in (None, axis) else f"{parameter}_axis{axis % 2}"

    def of_weight(self, title: str, weight: Tensor, op: OpNode, wanted: Options) -> Quantizer:
        """A quantizer with the op's channel axis, and the range of the weight as it is."""
        groups = argument(op.node, "groups", 1)
        return make_for_weight(title, wanted, weight, op.type, groups, self.quantizer)

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
