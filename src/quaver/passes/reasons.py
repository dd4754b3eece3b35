"""Why an op that was not quantized is float."""

from torch import fx

from quaver.graph.nodes import op_of
from quaver.int8.patterns import foldable_batch_norm
from quaver.operators import facts
from quaver.program.reason import Because, ComputedWith, Folded, NotListed, Reason


def why_float(ops: dict[str, fx.Node], quantized: frozenset[str], known: dict[str, Reason]) -> dict[str, Reason]:
    """``known`` reasons, and one for every other op that is not quantized."""
    reasons = dict(known)
    by_node = {ops[name]: name for name in quantized}
    for name, node in ops.items():
        if name in quantized or name in reasons:
            continue
        op_type = op_of(node).type
        before = next(iter(node.all_input_nodes), None)
        if op_type == "batch_norm" and before in by_node and foldable_batch_norm(before) is node:
            reasons[name] = Folded(by_node[before])
            by_node[node] = by_node[before]
        elif facts(node).fused and before in by_node and len(before.users) == 1:
            reasons[name] = ComputedWith(by_node[before])
        elif op_type == "batch_norm":
            reasons[name] = Because("not folded: no quantized convolution gives it its input and nobody else")
        else:
            reasons[name] = NotListed(op_type)
    return reasons
