"""Why an op that was not quantized is float."""

import re
from ast import literal_eval

from torch import fx

from quaver.graph.nodes import op_of
from quaver.int8.patterns import foldable_batch_norm

CLAMPS = frozenset({"relu", "relu6", "hardtanh", "clamp"})
ACTIVATIONS = CLAMPS | {
    "hard_swish",
    "hard_sigmoid",
    "swish",
    "sigmoid",
    "leaky_relu",
    "elu",
    "gelu",
    "tanh",
    "mish",
}

FOLDED, TOGETHER = "folded into", "computed with"
"""How a reason begins that names the op which another is part of."""


def why_float(ops: dict[str, fx.Node], quantized: frozenset[str], known: dict[str, str]) -> dict[str, str]:
    """``known`` reasons, and one for every other op that is not quantized."""
    reasons = dict(known)
    by_node = {ops[name]: name for name in quantized}
    for name, node in ops.items():
        if name in quantized or name in reasons:
            continue
        op_type = op_of(node).type
        before = _source(node)
        if op_type == "batch_norm" and before in by_node and foldable_batch_norm(before) is node:
            reasons[name] = f"{FOLDED} {by_node[before]!r}"
            by_node[node] = by_node[before]
        elif op_type in ACTIVATIONS and before in by_node and len(before.users) == 1:
            reasons[name] = f"{TOGETHER} {by_node[before]!r} in one step, before the result is rounded"
        elif op_type == "batch_norm":
            reasons[name] = "not folded: no quantized convolution gives it its input and nobody else"
        else:
            reasons[name] = f"{op_type!r} is not among the op types to quantize"
    return reasons


def host_in(reason: str, *beginnings: str) -> str:
    """The op that another is part of, by the reason why that one is float; nothing if the reason begins otherwise.

    >>> host_in("folded into 'stem.0'", FOLDED), host_in("folded into 'stem.0'", TOGETHER)
    ('stem.0', '')
    """
    quoted = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    found = re.match(f"(?:{'|'.join(beginnings)}) ({quoted})", reason)
    try:
        return str(literal_eval(found[1])) if found else ""
    except (ValueError, SyntaxError):  # not as we quote
        return ""


def _source(node: fx.Node) -> fx.Node | None:
    return node.all_input_nodes[0] if node.all_input_nodes else None
