"""What a node of a graph is: what Quaver noted about it, what it calls, and what is known of that.

The notes in ``node.meta`` are read here; `quaver.graph.annotation` writes them while a model is captured, when nodes carry
torch's own as well. Ours are the fields of `NOTES`, which are saved with a program, and the op that a node is. Who asks
about many nodes asks once, for a table: `ops_in` of the ops, `facts_in` of all nodes.
"""

import math
import operator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx

from quaver.operators import BY_PREFIX, OPS, QUANTIZER, UNKNOWN, UNSEEN, OpFacts

MODULE_NOTES = {"module": str, "gives": list, "gives_part": list, "takes": list}
"""What a node is to the model's modules, by their paths. ``module``: the batch norm or dropout that it computes, whose mode
and settings it follows. ``gives``: its tensor is what these calls of modules gave back; ``gives_part``, one of several that
they gave back. ``takes``: it is what these calls were given."""

NOTES = {
    "dtype": torch.dtype,
    "rank": int,
    "quantizer": str,
    "signed": bool,
    "written": bool,
    "constant": bool,
    **MODULE_NOTES,
    "axis": int,
}
"""Facts about a node's tensor. ``quantizer``: the node calls this tensor's quantizer, on a ``signed`` grid. ``written``: the
model writes into it in place. ``constant``: it does not depend on the input. ``axis``: of what does not, the only axis that
is longer than 1, counted from the end (−1 is the last); 0 where there is none."""


@dataclass(frozen=True)
class Op:
    """An op as the model's author knows it."""

    name: str
    type: str
    scope: str
    source: str


@dataclass(frozen=True, eq=False)
class OpNode(Op):
    """An op in a graph: its node, what is known of it, the tensors it computes on, and its weight if it has one."""

    node: fx.Node
    facts: OpFacts
    inputs: list[fx.Node]
    weight: fx.Node | None


def ops_in(graph: fx.Graph) -> dict[str, OpNode]:
    """The ops of a graph by name, in order, as they are now."""
    nodes = [node for node in graph.nodes if is_op(node)]
    return {
        op.name: OpNode(op.name, op.type, op.scope, op.source, node, facts(node), activation_inputs(node), weight_of(node))
        for op, node in zip(map(op_of, nodes), nodes, strict=True)
    }


Facts = dict[fx.Node, OpFacts]
"""What is known of each node of a graph, in order."""


def facts_in(graph: fx.Graph) -> Facts:
    """What is known of each node as it is now."""
    return {node: facts(node) for node in graph.nodes}


def parameters_in(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose tensors do not depend on the input."""
    return {node for node in graph.nodes if is_parameter(node)}


# what is noted


def is_op(node: fx.Node) -> bool:
    """Whether a node is an op to the model's author; quantizers, casts and shape arithmetic are none."""
    return "op" in node.meta


def op_of(node: fx.Node) -> Op:
    """The op that a node is."""
    return node.meta["op"]  # type: ignore[no-any-return]


def ops_by_name(graph: fx.Graph) -> dict[str, fx.Node]:
    """The nodes that are ops, by the ops' names."""
    return {op_of(node).name: node for node in graph.nodes if is_op(node)}


def quantizer_of(node: fx.Node) -> str:
    """The tensor whose quantizer a node calls; empty for any other node."""
    return str(node.meta.get("quantizer", ""))


def is_signed(node: fx.Node) -> bool:
    """Whether the quantizer that a node calls has a signed grid."""
    return bool(node.meta.get("signed", True))


def is_written(node: fx.Node) -> bool:
    """Whether the model writes into a tensor in place."""
    return bool(node.meta.get("written", False))


def is_float(node: fx.Node) -> bool:
    """Whether a tensor is floating-point, as far as is known."""
    dtype = dtype_of(node)
    return dtype is None or dtype.is_floating_point


def rank_of(node: Any) -> int | None:
    """How many dimensions a tensor has, if that is known."""
    return node.meta.get("rank")  # type: ignore[no-any-return]


def dtype_of(node: fx.Node) -> torch.dtype | None:
    """A tensor's dtype, if it is known."""
    return node.meta.get("dtype")


def tensor_notes(node: fx.Node, **changes: Any) -> dict[str, Any]:
    """The notes for another node with a tensor like this one's, which is not the op itself."""
    return {key: value for key, value in node.meta.items() if key not in ("op", "constant", *MODULE_NOTES)} | changes


def modules_in(graph: fx.Graph) -> dict[fx.Node, str]:
    """The nodes that compute batch norms and dropouts of the model, with the paths of these."""
    return {node: str(node.meta["module"]) for node in graph.nodes if "module" in node.meta}


def calls_in(graph: fx.Graph, *notes: str) -> list[list[tuple[str, fx.Node]]]:
    """For each of these notes, the calls of modules that a graph's tensors belong to (`calls_noted`), each with its node."""
    return [[(call, node) for node in graph.nodes for call in node.meta.get(note, ())] for note in notes]


def calls_noted(node: fx.Node, note: str) -> list[str]:
    """The calls of modules that a node's tensor belongs to: those that ``gives``, ``gives_part`` or ``takes`` says.

    ``layer1`` is the first call of that module, ``layer1@1`` the second.
    """
    return list(node.meta.get(note, ()))


def axis_of(node: fx.Node) -> int | None:
    """The one axis, counted from the end, along which a tensor that does not depend on the input varies; 0: along none.

    None where it varies along several, or where that is not known.
    """
    return node.meta.get("axis")


# what it calls


def packet(node: fx.Node) -> str:
    """The op's own name without namespace and overload: ``conv2d`` for ``aten.conv2d.padding``."""
    if isinstance(node.target, torch._ops.OpOverload):
        return _packet(node.target)
    return getattr(node.target, "__name__", str(node.target))


@cache
def _packet(target: torch._ops.OpOverload) -> str:
    return target._schema.name.split("::")[1]


def calls(node: Any, *names: str) -> bool:
    """Whether a value of a graph is a call of one of these ops."""
    return isinstance(node, fx.Node) and node.op == "call_function" and packet(node) in names


def results(node: fx.Node) -> list[fx.Node]:
    """The tensors an op gives: itself, or the parts of a split."""
    parts = [user for user in node.users if calls(user, "getitem")]
    return parts or [node]


def argument(node: fx.Node, name: str, default: Any = None) -> Any:
    """An op's argument by its name in the schema, wherever the graph wrote it."""
    if name in node.kwargs:
        return node.kwargs[name]
    assert isinstance(node.target, torch._ops.OpOverload)
    for position, parameter in enumerate(node.target._schema.arguments):
        if parameter.name == name:
            if position < len(node.args):
                return node.args[position]
            return parameter.default_value if parameter.has_default_value() else default
    return default


def facts(node: Any) -> OpFacts:
    """What is known of the op that a value of a graph is a call of; `UNKNOWN` of anything else."""
    if not isinstance(node, fx.Node):
        return UNKNOWN
    if node.op == "call_module":
        return QUANTIZER if quantizer_of(node) else UNKNOWN
    if node.op != "call_function":
        return UNKNOWN
    name = packet(node)
    return OPS.get(name) or next((row for prefix, row in BY_PREFIX.items() if name.startswith(prefix)), UNKNOWN)


def is_fake_quant(node: Any) -> bool:
    """Whether a node calls a quantizer."""
    return facts(node).kind == "quantizer"


def is_quantize(node: Any) -> bool:
    """Whether a node is a ``quantized_decomposed`` quantize."""
    return facts(node).kind == "quantize"


def is_dequantize(node: Any) -> bool:
    """Whether a node is a ``quantized_decomposed`` dequantize."""
    return facts(node).kind == "dequantize"


def is_parameter(node: Any) -> bool:
    """Whether a graph value does not depend on the input: read from the model, or computed from what is."""
    return isinstance(node, fx.Node) and (node.op == "get_attr" or node.meta.get("constant", False))


def depends_on_input(value: Any) -> bool:
    """Whether a graph value is another for each input; a number and None are not."""
    return isinstance(value, fx.Node) and not is_parameter(value)


def is_stored(node: Any, rank: int | None = None) -> bool:
    """Whether a graph value is read from the model as it is (with this many dimensions)."""
    return isinstance(node, fx.Node) and node.op == "get_attr" and rank in (None, rank_of(node))


def is_fixed(node: fx.Node) -> bool:
    """Whether a value that depends on no input is the same each time: no chance, no writing into the model's tensors."""
    calls = [value.target for value in behind(node) if isinstance(value.target, torch._ops.OpOverload)]
    return not any(call._schema.is_mutable or torch.Tag.nondeterministic_seeded in call.tags for call in calls)


def behind(node: fx.Node) -> dict[fx.Node, None]:
    """A node and all that it is computed from, each after those that it reads."""
    ordered: dict[fx.Node, None] = {}
    waiting = [node]
    while waiting:
        missing = [source for source in waiting[-1].all_input_nodes if source not in ordered]
        waiting += missing
        if not missing:
            ordered[waiting.pop()] = None
    return ordered


def stored_weight(dequantized: fx.Node) -> fx.Node:
    """The constant behind the dequantize node of a weight, which may be kept as float32 integers behind a cast."""
    source = dequantized
    while source.op != "get_attr":
        source = source.args[0]  # type: ignore[assignment]
    return source


def weight_of(node: fx.Node) -> fx.Node | None:
    """The weight of an op that has one: a convolution's, a linear layer's, a product's; a parameter, or made of some."""
    op = facts(node)
    if not op.has_weight or not is_parameter(node.args[1]):
        return None
    weight: Any = node.args[1]
    return weight if op.is_layer or rank_of(weight) == op.weight.rank else None  # a layer would not run with another


def activation_inputs(node: fx.Node) -> list[fx.Node]:
    """The tensors an op computes on, in order; weights, biases and shape numbers are not among them."""
    operands = facts(node).operands
    tensors: Any = node.args[:operands] if operands else node.args[0]
    return [value for value in tensors if depends_on_input(value) and not is_number(value)]


def is_number(node: fx.Node) -> bool:
    """Whether a graph value is no tensor: a size, what ``item()`` gives, or arithmetic on such."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return facts(node).kind == "shape" or not isinstance(node.target, torch._ops.OpOverload)


def reads_parameter(node: fx.Node) -> bool:
    """Whether one of an op's operands does not depend on the input."""
    return any(is_parameter(value) for value in node.all_input_nodes)


def with_values(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that depend on the values of the inputs, and not on their sizes alone."""
    dependent: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or (not is_number(node) and any(value in dependent for value in node.all_input_nodes)):
            dependent.add(node)
    return dependent


def op_types(graph: fx.Graph) -> dict[fx.Node, str]:
    """The types of the ops of a graph as it was captured, in order."""
    types: dict[fx.Node, str] = {}
    for node in graph.nodes:
        given = [value.meta.get("val") for value in node.args[1:2] if is_parameter(value)]
        weights = [tuple(value.shape) for value in given if isinstance(value, torch.Tensor)]
        if node.op == "call_function" and (op_type := type_of(node, *weights)) is not None:
            types[node] = op_type
    return types


def type_of(node: fx.Node, weight_shape: tuple[int, ...] | None = None) -> str | None:
    """The op's type, or None for what is no op to a user (shape arithmetic, list access, counters)."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    name, op = packet(node), facts(node)
    if name in UNSEEN or op.kind == "shape":
        return None
    if name == "conv2d" and weight_shape is not None and weight_shape[1] == 1 and argument(node, "groups") > 1:
        return "depthwise_conv2d"
    if name == "hardtanh":
        return "relu6" if clamp_bounds(node) == (0, 6) else name
    if op.kind == "elementwise" and len(activation_inputs(node)) == 1 and not reads_parameter(node):
        return "scale"
    return op.type or name


def clamp_bounds(node: fx.Node) -> tuple[float, float] | None:
    """Between which values an op clamps, if that is what it does."""
    bounds = facts(node).bounds
    if bounds is None:
        return None
    least, most = (argument(node, bound) if isinstance(bound, str) else bound for bound in bounds)
    if isinstance(least, fx.Node) or isinstance(most, fx.Node):
        return None  # tensors, known only when it runs
    return float(-math.inf if least is None else least), float(math.inf if most is None else most)


def pads_with_infinity(node: fx.Node) -> bool:
    """Whether a tensor is a padding with plus or minus infinity, as some write a max pool."""
    value = argument(node, "value") if calls(node, "pad", "constant_pad_nd") else None
    return isinstance(value, float) and math.isinf(value)


def shares_steps(layer: fx.Node) -> bool:
    """Whether a layer's groups share the weight's steps, so that an output channel has none of its own."""
    return packet(layer) == "conv_transpose2d" and argument(layer, "groups") != 1
