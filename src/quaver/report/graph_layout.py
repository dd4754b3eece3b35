"""A layout for networks: ranks from left to right, each tensor on a lane of its own as long as somebody will read it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class NodePosition:
    """Where a node stands: its rank (the longest way to it), and its lane."""

    rank: int
    lane: int


@dataclass(frozen=True)
class Layout:
    """Places of the nodes, and the edges from node to node. A tensor keeps its node's lane until its last reader."""

    places: dict[str, NodePosition]
    edges: list[tuple[str, str]]

    @property
    def ranks(self) -> int:
        """How many there are."""
        return 1 + max((place.rank for place in self.places.values()), default=-1)


def laid_out(reads: Mapping[str, Iterable[str]]) -> Layout:
    """The layout of a network: for each node, in an order in which it can be computed, the nodes it reads.

    A node takes the lane of a tensor that it is the last to read, the lowest one, or else the lowest free lane. So a
    residual stream runs straight on, and its blocks stand beside it.
    """
    edges = [(source, name) for name, sources in reads.items() for source in dict.fromkeys(sources) if source in reads]
    sources, readers = defaultdict(list), defaultdict(list)
    for source, name in edges:
        sources[name].append(source)
        readers[source].append(name)
    rank: dict[str, int] = {}
    for name in reads:
        rank[name] = 1 + max((rank[source] for source in sources[name]), default=-1)
    until = {name: max((rank[reader] for reader in readers[name]), default=rank[name]) for name in reads}
    places: dict[str, NodePosition] = {}
    free_from: list[int] = []  # for each lane, the rank from which it is free
    for name in sorted(reads, key=lambda node: rank[node]):  # stable: within a rank, the order given
        own = rank[name]
        ending = sorted(places[source].lane for source in sources[name] if until[source] == own)
        lane = next((lane for lane in ending if free_from[lane] <= own), None)
        if lane is None:
            lane = next((lane for lane, free in enumerate(free_from) if free <= own), len(free_from))
        if lane == len(free_from):
            free_from.append(0)
        places[name] = NodePosition(own, lane)
        free_from[lane] = max(until[name], own + 1)
    return Layout(places, edges)
