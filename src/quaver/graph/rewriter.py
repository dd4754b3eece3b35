"""Rewriting a graph into another, node by node: what every lowering does."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from quaver.graph.nodes import Facts, facts_in


@dataclass
class Lowering(ABC):
    """Rewrites a graph that says what is quantized into one that computes it on integers, as an engine does.

    ``facts`` are those of the old graph's nodes. ``copies`` says what became of each of them; ``integers``, of one that
    rounds or dequantizes, the node that computes its integers, and their step.
    """

    facts: Facts = field(default_factory=dict)
    result: fx.Graph = field(default_factory=fx.Graph)
    copies: dict[fx.Node, fx.Node] = field(default_factory=dict)
    integers: dict[fx.Node, tuple[fx.Node, Any]] = field(default_factory=dict)
    spare: list[fx.Node] = field(default_factory=list)  # dropped at the end if nobody reads them

    def run(self, graph: fx.Graph, kept: Collection[fx.Node] = ()) -> fx.Graph:
        """A copy of ``graph`` in the engine's arithmetic; without quantized ops, an equal graph.

        What the nodes ``kept`` became is computed even if nobody reads it.
        """
        self.facts = facts_in(graph)
        for node, op in self.facts.items():
            if node in self.copies:  # done with another, as a batch norm is with its convolution
                continue
            if op.kind == "quantize":  # its dequantize does the work
                self.copies[node] = self.spared(self.copy(node))
            elif node.op in ("call_function", "call_module"):
                self.copies[node] = self.lowered(node) or self.copy(node)
            else:
                self.copies[node] = self.copy(node)
        staying = {self.copies[node] for node in kept}
        for node in reversed(self.spare):
            if not node.users and node not in staying:
                self.result.erase_node(node)
        return self.result

    @abstractmethod
    def lowered(self, node: fx.Node) -> fx.Node | None:
        """What a node that computes becomes; None where it stays as it is."""

    def copy(self, node: fx.Node) -> fx.Node:
        """The node as it is."""
        twin = self.result.node_copy(node, self.copies.__getitem__)
        twin.meta = dict(node.meta)
        return twin

    def call(self, function: Any, *args: Any, **options: Any) -> fx.Node:
        """A call of a kernel with nodes of the new graph, or of the old."""
        given, further = fx.map_arg((args, options), lambda old: self.copies.get(old, old))  # type: ignore[misc]
        return self.result.call_function(function, given, further)

    def spared(self, node: fx.Node) -> fx.Node:
        """A node that goes if nobody reads it."""
        self.spare.append(node)
        return node

    def became(self) -> dict[fx.Node, fx.Node]:
        """What became of each node: of one that rounds, the node that computes its integers."""
        return self.copies | {node: whole for node, (whole, _) in self.integers.items()}
