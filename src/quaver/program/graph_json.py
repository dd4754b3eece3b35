"""Graphs as JSON and back. Only what is listed here is read: a file can name an op, but never bring code."""

import keyword
import math
import operator
from collections import OrderedDict, namedtuple
from collections.abc import Collection
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import fx
from torch.utils import _pytree as pytree

from quaver.errors import StorageError
from quaver.graph.nodes import NOTES, Op
from quaver.program.allowed_ops import is_allowed
from quaver.program.devices import device_of
from quaver.records import decoded

_OPERATORS = "getitem add sub mul floordiv truediv mod neg pow eq ne lt le gt ge and_ or_ not_"
_PYTHON = {f"operator.{name}": getattr(operator, name) for name in _OPERATORS.split()} | {
    "quaver.device_of": device_of,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "torch.sym_max": torch.sym_max,
    "torch.sym_min": torch.sym_min,
}
_PYTHON_NAMES = {function: name for name, function in _PYTHON.items()}
_WAY_OUT = "Save the state_dict() of the program that trains, and load it into one made of the model in the same way."


def encode_graph(graph: fx.Graph) -> list[dict[str, Any]]:
    """The nodes of a graph, in order."""
    return [
        {
            "name": node.name,
            "op": node.op,
            "target": _encode_target(node),
            "args": encode(node.args),
            "kwargs": encode(dict(node.kwargs)),
            "meta": _encode_meta(node.meta),
        }
        for node in graph.nodes
    ]


def decode_graph(nodes: list[dict[str, Any]], readable: Collection[str], callable_: Collection[str]) -> fx.Graph:
    """The graph that `encode_graph` was given; it may read and call only what stands at these paths."""
    allowed = {"get_attr": readable, "call_module": callable_}
    graph, node_named = fx.Graph(), dict[str, fx.Node]()
    for entry in nodes:
        kwargs = decode(entry["kwargs"], node_named)
        if not all(_is_name(key) for key in kwargs):
            raise ValueError(f"keyword {kwargs!r}")
        if entry["op"] not in ("placeholder", "get_attr", "call_function", "call_module", "output"):
            raise ValueError(f"node kind {entry['op']!r}")
        target = _decode_target(entry["op"], entry["target"])
        if target not in allowed.get(entry["op"], (target,)):
            raise ValueError(f"path {target!r}")
        node = graph.create_node(entry["op"], target, decode(entry["args"], node_named), kwargs, entry["name"])
        node.meta = _decode_meta(entry["meta"])
        node_named[entry["name"]] = node
    graph.lint()
    return graph


def encode_structure(spec: pytree.TreeSpec) -> Any:
    """A nested structure of lists, tuples and dicts, with the leaves numbered."""
    return encode(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))


def decode_structure(structure: Any) -> pytree.TreeSpec:
    """The structure that `encode_structure` was given."""
    return pytree.tree_structure(decode(structure, {}))


def encode(value: Any) -> Any:
    """A value of a graph as JSON."""
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, fx.immutable_collections.immutable_list) or type(value) is list:
        return [encode(item) for item in value]
    if type(value) is tuple:
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"namedtuple": [type(value).__name__, list(value._fields), [encode(item) for item in value]]}
    if isinstance(value, OrderedDict):
        return {"ordered": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, fx.immutable_collections.immutable_dict) or type(value) is dict:
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"slice": [encode(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    raise StorageError(f"a value of type {type(value).__name__} in the graph has no form in a file: {value!r}. {_WAY_OUT}")


def decode(value: Any, nodes: dict[str, fx.Node]) -> Any:
    """The value that `encode` was given."""
    if isinstance(value, list):
        return [decode(item, nodes) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "node":
        return nodes[content]
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(decode(item, nodes) for item in content)
    if kind == "dict":
        return {decode(key, nodes): decode(item, nodes) for key, item in content}
    if kind == "ordered":
        return OrderedDict((decode(key, nodes), decode(item, nodes)) for key, item in content)
    if kind == "namedtuple":
        return namedtuple(content[0], content[1])(*(decode(item, nodes) for item in content[2]))
    if kind == "slice":
        return slice(*(decode(part, nodes) for part in content))
    if kind == "device":
        return torch.device(content)
    constant = getattr(torch, content) if kind == "torch" else None
    if not isinstance(constant, torch.dtype | torch.memory_format | torch.layout):
        raise ValueError(f"constant {value!r}")
    return constant


def _encode_target(node: fx.Node) -> str:
    if node.op != "call_function":
        return str(node.target)
    if isinstance(node.target, torch._ops.OpOverload) and is_allowed(node.target):
        return str(node.target)
    if node.target in _PYTHON_NAMES:
        return _PYTHON_NAMES[node.target]
    raise StorageError(f"the op {node.target} of node {node.name!r} has no form in a file, which brings no code. {_WAY_OUT}")


def _decode_target(op: str, target: str) -> Any:
    if op != "call_function":
        if not isinstance(target, str) or (op == "placeholder" and not _is_name(target)):  # an argument is code
            raise ValueError(f"target {target!r}")
        return target
    if target in _PYTHON:
        return _PYTHON[target]
    namespace, name, overload = target.split(".")
    operation = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    if not isinstance(operation, torch._ops.OpOverload) or not is_allowed(operation):
        raise ValueError(f"op {target!r}, which a program in a file cannot call")
    return operation


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word) and word != "self"


def _encode_meta(meta: dict[str, Any]) -> dict[str, Any]:
    kept = {key: encode(meta[key]) for key in NOTES if key in meta}
    return kept | ({"op": vars(meta["op"])} if "op" in meta else {})


def _decode_meta(meta: dict[str, Any]) -> dict[str, Any]:
    kept = {key: decode(value, {}) for key, value in meta.items() if key in NOTES}
    for key, value in kept.items():
        if type(value) is not NOTES[key] or (type(value) is list and not all(type(item) is str for item in value)):
            raise TypeError(f"{key} {value!r:.60}")
    return kept | ({"op": decoded(Op, meta["op"])} if "op" in meta else {})
