"""Why an op that was not quantized is float."""

from quaver.graph.nodes import OpNode, behind, is_op, op_of
from quaver.graph.patterns import folded_behind
from quaver.program.reason import Because, ComputedWith, Folded, NotListed, Reason


def why_float(ops: dict[str, OpNode], quantized: frozenset[str], declined: dict[str, Reason]) -> dict[str, Reason]:
    """Why ops were ``declined``, and a reason for every other one that is not quantized."""
    reasons = dict(declined) | _in_weights(ops, quantized)
    by_node = {ops[name].node: name for name in quantized}
    folded = {node: name for layer, name in by_node.items() for node in folded_behind(layer)}
    by_node |= folded
    for name, op in ops.items():
        if op.node in folded:
            reasons[name] = Folded(folded[op.node])
            continue
        if name in quantized or name in reasons:
            continue
        before = next(iter(op.node.all_input_nodes), None)
        if op.facts.fused and before in by_node and len(before.users) == 1:
            reasons[name] = ComputedWith(by_node[before])
        elif op.type == "batch_norm":
            reasons[name] = Because("not folded: no quantized convolution gives it its input and nobody else")
        else:
            reasons[name] = NotListed(op.type)
    return reasons


def _in_weights(ops: dict[str, OpNode], quantized: frozenset[str]) -> dict[str, Reason]:
    """The ops that compute the weights of others: a frozen program has what they come to."""
    weights = [(name, ops[name].weight) for name in quantized]
    return {
        op_of(node).name: Folded(name)
        for name, weight in weights
        if weight is not None
        for node in behind(weight)
        if is_op(node)
    }
