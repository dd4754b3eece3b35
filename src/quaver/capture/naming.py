"""Give the ops of the two graphs their names, so that each op of the model has one name in both."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import fx

from quaver.capture.modules import Places
from quaver.capture.scope import KEY
from quaver.graph.annotation import note_constants, note_ops
from quaver.graph.nodes import Op, op_types

_TORCH, _HERE = str(Path(torch.__file__).parent), str(Path(__file__).parent)
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


class Naming:
    """Names for ops; the graph that is named first decides, and an op of a later graph gets the name of its twin.

    Twins are ops of one type that stem from the same call of the same module at the same source line.
    """

    def __init__(self) -> None:
        self._named: dict[Any, list[str]] = defaultdict(list)
        self._taken: set[str] = set()

    def tag(self, graph: fx.Graph, places: Places) -> None:
        """Put an `Op` on every node that is an op to a user, and drop what the tracer noted beside it."""
        met: dict[Any, int] = defaultdict(int)
        constants, types = note_constants(graph), op_types(graph)
        ops = {
            node: self._op(node, op_type, places[node], met, computes=node not in constants)
            for node, op_type in types.items()
            if not _is_counter(node)
        }
        note_ops(graph, ops)

    def _op(self, node: fx.Node, op_type: str, place: tuple[str, str], met: dict[Any, int], *, computes: bool) -> Op:
        path, module_type = place
        added = node.meta.get("custom", {}).get(KEY, "")
        key = (path, added, op_type, node.meta.get("stack_trace"))
        twins, position = self._named[key], met[key]
        met[key] += 1
        if position == len(twins):
            # a layer's name is for what it computes, not for what makes its weight
            is_layer = module_type.startswith("torch.nn.") and path and computes
            twins.append(self._unique(path if is_layer else f"{path}.{op_type}".lstrip(".")))
        scope = ".".join(part for part in (path, added) if part)
        return Op(twins[position], op_type, scope, _source(node.meta.get("stack_trace") or ""))

    def _unique(self, name: str) -> str:
        candidate, count = name, 0
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        self._taken.add(candidate)
        return candidate


def _is_counter(node: fx.Node) -> bool:
    """Whether the op only updates a buffer of the model (``num_batches_tracked += 1``)."""
    written = node.args[0] if node.args else None
    name = str(node.target)
    return isinstance(written, fx.Node) and written.op == "get_attr" and "_." in name


def _source(stack_trace: str) -> str:
    """``file.py:12`` of the innermost line that is not torch's own."""
    frames = [match for match in _FRAME.finditer(stack_trace) if not match["file"].startswith((_TORCH, _HERE))]
    if not frames:
        return ""
    return f"{Path(frames[-1]['file']).name}:{frames[-1]['line']}"
