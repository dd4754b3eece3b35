"""Rewriting a graph into another, node by node: what every lowering does."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from torch import fx


@dataclass
class GraphRewriter:
    """The graph that grows, and what became of each node of the old one."""

    result: fx.Graph = field(default_factory=fx.Graph)
    copies: dict[fx.Node, fx.Node] = field(default_factory=dict)
    spare: list[fx.Node] = field(default_factory=list)  # dropped at the end if nobody reads them

    def copy(self, node: fx.Node) -> fx.Node:
        """The node as it is."""
        twin = self.result.node_copy(node, lambda old: self.copies[old])
        twin.meta = dict(node.meta)
        return twin

    def call(self, function: Any, *args: Any) -> fx.Node:
        """A call of a kernel with nodes of the new graph, or of the old."""
        return self.result.call_function(function, fx.map_arg(args, lambda old: self.copies.get(old, old)))

    def without_spare(self) -> fx.Graph:
        """The new graph, less what is computed in vain."""
        for node in reversed(self.spare):
            if not node.users:
                self.result.erase_node(node)
        return self.result


@dataclass
class Lowering(GraphRewriter, ABC):
    """Rewrites a graph that says what is quantized into one that computes it on integers, as an engine does.

    ``integers``: of a node that rounds or dequantizes, the node that computes its integers, and their step.
    """

    integers: dict[fx.Node, tuple[fx.Node, Any]] = field(default_factory=dict)

    @abstractmethod
    def run(self, graph: fx.Graph) -> fx.Graph:
        """A copy of ``graph`` in the engine's arithmetic; without quantized ops, an equal graph."""

    def became(self) -> dict[fx.Node, fx.Node]:
        """What became of each node: of one that rounds, the node that computes its integers."""
        return self.copies | {node: whole for node, (whole, _) in self.integers.items()}
