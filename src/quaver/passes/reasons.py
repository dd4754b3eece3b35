"""Why an op that was not quantized is float."""

from collections.abc import Iterable

from torch import fx

from quaver.graph.nodes import OpNode, behind, is_op, op_of
from quaver.program.reason import Because, ComputedWith, Folded, NotListed, Reason


def why_float(
    ops: dict[str, OpNode], folded_behind: dict[str, list[fx.Node]], declined: dict[str, Reason]
) -> dict[str, Reason]:
    """Why ops were ``declined``, and a reason for every other that is not quantized: its key is not in ``folded_behind``.

    That says of each quantized op what it does by itself of what follows.
    """
    reasons = dict(declined) | _in_weights(ops, folded_behind)
    folded = {node: name for name, nodes in folded_behind.items() for node in nodes}
    by_node = {ops[name].node: name for name in folded_behind} | folded
    for name, op in ops.items():
        if op.node in folded:
            reasons[name] = Folded(folded[op.node])
            continue
        if name in folded_behind or name in reasons:
            continue
        before = next(iter(op.node.all_input_nodes), None)
        if op.facts.fused and before in by_node and len(before.users) == 1:
            reasons[name] = ComputedWith(by_node[before])
        elif op.type == "batch_norm":
            reasons[name] = Because("not folded: no quantized convolution gives it its input and nobody else")
        else:
            reasons[name] = NotListed(op.type)
    return reasons


def _in_weights(ops: dict[str, OpNode], quantized: Iterable[str]) -> dict[str, Reason]:
    """The ops that compute the weights of others: a frozen program has what they come to."""
    weights = [(name, ops[name].weight) for name in quantized]
    return {
        op_of(node).name: Folded(name)
        for name, weight in weights
        if weight is not None
        for node in behind(weight)
        if is_op(node)
    }
