"""Why an op that was not quantized is float."""

from quaver.graph.nodes import OpNode, behind, is_op, op_of
from quaver.graph.patterns import foldable_batch_norm
from quaver.program.reason import Because, ComputedWith, Folded, NotListed, Reason


def why_float(ops: dict[str, OpNode], quantized: frozenset[str], declined: dict[str, Reason]) -> dict[str, Reason]:
    """Why ops were ``declined``, and a reason for every other one that is not quantized."""
    reasons = dict(declined) | _in_weights(ops, quantized)
    by_node = {ops[name].node: name for name in quantized}
    for name, op in ops.items():
        if name in quantized or name in reasons:
            continue
        before = next(iter(op.node.all_input_nodes), None)
        if op.type == "batch_norm" and before in by_node and foldable_batch_norm(before) is op.node:
            reasons[name] = Folded(by_node[before])
            by_node[op.node] = by_node[before]
        elif op.facts.fused and before in by_node and len(before.users) == 1:
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
