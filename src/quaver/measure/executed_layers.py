"""What an engine really executes, layer by layer: in which precision, and for how long. The engine itself is asked."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quaver.engines import ENGINES, by_package
from quaver.engines.file_graph import FileNode
from quaver.engines.inspection import ExecutedLayer
from quaver.errors import EngineError
from quaver.operators import WEIGHTED as WEIGHTED_OPS
from quaver.program.op_record import why_in
from quaver.program.reason import ComputedWith
from quaver.runtime.artefact import provenance

INT8 = frozenset({"i8", "u8"})
FLOAT = frozenset({"f32", "bf16", "f16", "f64"})


@dataclass(frozen=True)
class ProfiledLayer(ExecutedLayer):
    """A layer as the engine executed it, and its ``share`` of the time.

    ``ops`` are the program's ops it computes, as far as names tell. ``given`` is where the layer stands in the file; None
    for what the engine added by itself.
    """

    share: float = 0.0
    ops: tuple[str, ...] = ()
    given: FileNode | None = None

    @property
    def is_int8(self) -> bool:
        """Did it compute on 8-bit integers?"""
        return self.precision in INT8 and self.role not in ("rounding", "reorder")

    @property
    def is_reorder(self) -> bool:
        """Does it only store a tensor another way, as no one but the engine asked for?"""
        return self.role == "reorder" or (self.type == "Transpose" and self.given is None)

    @property
    def is_float(self) -> bool:
        """Did it compute in float? Not what only looks at a tensor's shape."""
        computes = self.role != "rounding" and not self.is_reorder and self.writes in FLOAT | INT8
        return computes and self.precision in FLOAT


def layers(path: Path, engine: str, *, threads: int = 1, batch: int = 1, rounds: int = 20) -> list[ProfiledLayer]:
    """Every layer that the engine executed for a random batch, in its order; times are over ``rounds`` calls."""
    profile = by_package(engine).profile(path, threads, batch, rounds)
    if profile is None:
        telling = " and ".join(candidate.package for candidate in ENGINES.values() if candidate.tells_layers)
        raise EngineError(f"{path}: {engine} does not tell what it executes. Layers are shown for {telling}.")
    names, whole = _Names(profile.file, path), sum(layer.microseconds for layer in profile.layers) or 1.0
    return [
        ProfiledLayer(**vars(layer), share=layer.microseconds / whole, ops=names.ops(layer), given=names.given(layer))
        for layer in profile.layers
    ]


def titles(executed: list[ProfiledLayer]) -> dict[str, str]:
    """What to call each layer: the program's names where they are known, ``from → to`` for a reorder."""
    titles = {layer.name: " + ".join(layer.ops) or _tensor(_plain(layer.file_name or layer.name)) for layer in executed}
    for layer in executed:
        if layer.is_reorder:
            before = [titles[name] for name in layer.reads[:1]] or ["the input"]
            behind = [titles[other.name] for other in executed if layer.name in other.reads][:1] or ["the output"]
            titles[layer.name] = f"{before[0]} → {behind[0]}"
    return titles


def products_in_int8(executed: Iterable[ProfiledLayer]) -> tuple[int, int]:
    """How many convolutions and matrix products ran in int8, and how many there are."""
    products = [layer for layer in executed if layer.role == "product"]
    return sum(layer.is_int8 for layer in products), len(products)


def totals(executed: Iterable[ProfiledLayer]) -> list[dict[str, Any]]:
    """Time by type and precision, the longest first."""
    groups: dict[tuple[str, str], list[ProfiledLayer]] = defaultdict(list)
    for layer in executed:
        groups[layer.type, layer.precision].append(layer)
    rows = [
        {
            "type": kind,
            "precision": precision,
            "layers": len(group),
            "microseconds": sum(layer.microseconds for layer in group),
            "share": sum(layer.share for layer in group),
        }
        for (kind, precision), group in groups.items()
    ]
    return sorted(rows, key=lambda row: -float(str(row["microseconds"])))


# names


class _Names:
    """From the names an engine gives its layers to the file's nodes, and to the program's ops where provenance is known.

    A convolution is known by its weights, any other layer by the quantized tensor that it writes.
    """

    def __init__(self, nodes: list[FileNode], path: Path) -> None:
        self.nodes = {_plain(node.name): node for node in reversed(nodes) if node.kind != "constant"}
        self.op_names: dict[str, str] = {}
        records = provenance(path).get("ops", [])
        self._by_quantized_tensors(nodes, {record["name"]: record for record in records})
        self._by_weights(nodes, records)

    def _by_quantized_tensors(self, nodes: list[FileNode], records: dict[str, Any]) -> None:
        for node in nodes:
            if node.kind != "rounding" or not node.inputs:
                continue
            # in an ONNX file that OpenVINO reads, the node's name goes to the conversion behind it
            named = [_tensor(_plain(near.name)) for near in (node, *node.readers)]
            tensor = next((name for name in named if name in records), None)
            if tensor is None:
                continue
            source = node.inputs[0]
            self.op_names[_plain(source.name)] = tensor
            while source.inputs and source.kind != "rounding" and source.weight() is None:
                source = source.inputs[0]
            why = why_in(records[tensor])
            if isinstance(why, ComputedWith) and source.weight() is not None:
                self.op_names[_plain(source.name)] = why.host

    def _by_weights(self, nodes: list[FileNode], records: list[Any]) -> None:
        readers = defaultdict(list)
        for node in nodes:
            if weight := node.weight():
                readers[weight.name.removeprefix("module.").rpartition(".")[0]].append(node)
        for scope, several in readers.items():
            ops = [op["name"] for op in records if op["scope"] == scope and op["type"] in WEIGHTED_OPS | {"matmul"}]
            if len(ops) == len(several):
                self.op_names.update(zip((_plain(node.name) for node in several), ops, strict=True))

    def ops(self, layer: ExecutedLayer) -> tuple[str, ...]:
        """The program's ops that a layer computes."""
        product = self.given(layer)
        names = [*([product.name] if product is not None else []), *layer.origins]
        return tuple(dict.fromkeys(self.op_names[name] for name in map(_plain, names) if name in self.op_names))

    def given(self, layer: ExecutedLayer) -> FileNode | None:
        """The first of a layer's nodes that the file has; for a product, the one with the weights."""
        nodes = [self.nodes[name] for name in map(_plain, layer.origins) if name in self.nodes]
        if layer.role == "product":
            for node in nodes:
                while node.is_bias_or_clamp() and node.inputs:
                    node = node.inputs[0]
                if node.weight() is not None:
                    return node
        return nodes[0] if nodes else None


def _plain(name: str) -> str:
    """A node's name without its type, which `quaver.export` puts before it."""
    return re.sub(r"^\w+:", "", name)


def _tensor(name: str) -> str:
    """A quantized tensor's name from that of the node that rounds it."""
    return re.sub(r"\.(rounded|integers)$", "", name)
