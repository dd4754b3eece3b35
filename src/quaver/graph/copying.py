"""Copies of graphs: as they are, or without quantizers."""

from torch import fx

from quaver.graph.nodes import quantizer_of


def copy_graph(graph: fx.Graph) -> fx.Graph:
    """A graph with nodes of its own."""
    twin = fx.Graph()
    names: dict[fx.Node, fx.Node] = {}
    result = twin.graph_copy(graph, names)
    twin.output(result)
    for old, new in names.items():
        new.meta = dict(old.meta)
    return twin


def without_quantizers(graph: fx.Graph) -> fx.Graph:
    """A copy of the graph without quantizers and observers."""
    bare = copy_graph(graph)
    for node in bare.find_nodes(op="call_module"):
        if quantizer_of(node):
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            bare.erase_node(node)
    return bare
