"""Why isn't it faster? Float layers, roundings and reorders of an int8 artefact, each with what would remove it.

Said is only what the engine's own account, the file and the program's records show.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from quaver.engines import ENGINES, by_package
from quaver.engines.file_graph import FileNode
from quaver.measure.executed_layers import FLOAT, ProfiledLayer, titles
from quaver.program.op_record import why_in
from quaver.program.reason import ComputedWith, NotListed, Reason, SkipPattern

Kind = Literal["float layer", "rounding", "reorder"]


@dataclass(frozen=True)
class Finding:
    """A layer that int8 does not need: what and where it is, why it is there, what would remove it (empty: not known)."""

    kind: Kind
    layer: str
    place: str
    microseconds: float
    share: float
    why: str
    remedy: str


def findings(executed: list[ProfiledLayer], engine: str, origin: dict[str, Any]) -> list[Finding]:
    """All of them, the longest first; none for a float model. ``origin`` is the artefact's provenance, or empty."""
    if not any(layer.is_int8 for layer in executed):
        return []
    explain = _Explaining(executed, engine, origin)
    kinds: dict[Kind, tuple[Callable[[ProfiledLayer], bool], Callable[[ProfiledLayer], tuple[str, str]]]] = {
        "float layer": (lambda layer: layer.is_float, explain.float_layer),
        "rounding": (lambda layer: layer.role == "rounding", explain.rounding),
        "reorder": (lambda layer: layer.is_reorder, explain.reorder),
    }
    findings = [
        Finding(kind, explain.titles[layer.name], explain.place(layer), layer.microseconds, layer.share, *sentence(layer))
        for kind, (is_one, sentence) in kinds.items()
        for layer in executed
        if is_one(layer)
    ]
    return sorted(findings, key=lambda finding: -finding.microseconds)


class _Explaining:
    def __init__(self, executed: list[ProfiledLayer], engine: str, origin: dict[str, Any]) -> None:
        self.layers = {layer.name: layer for layer in executed}
        self.titles = titles(executed)
        self.engine = by_package(engine)
        self.origin = origin
        self.records: dict[str, Any] = {record["name"]: record for record in origin.get("ops", [])}
        self.readers: dict[str, list[ProfiledLayer]] = {
            name: [layer for layer in executed if name in layer.reads] for name in self.layers
        }

    def place(self, layer: ProfiledLayer) -> str:
        """Where it stands among the int8 layers."""
        before = self._any_int8(layer, lambda other: [self.layers[name] for name in other.reads])
        behind = self._any_int8(layer, lambda other: self.readers[other.name])
        if before and behind:
            return "between int8 layers"
        return "before the first int8 layer" if behind else "behind the last int8 layer" if before else "apart"

    def _any_int8(self, layer: ProfiledLayer, neighbours: Callable[[ProfiledLayer], list[ProfiledLayer]]) -> bool:
        seen: set[str] = set()
        waiting = list(neighbours(layer))
        while waiting:
            layer_met = waiting.pop()
            if layer_met.is_int8:
                return True
            if layer_met.name not in seen:
                seen.add(layer_met.name)
                waiting += neighbours(layer_met)
        return False

    # float layers

    def float_layer(self, layer: ProfiledLayer) -> tuple[str, str]:
        """Why, and what would remove it."""
        record = self._record(layer)
        if record is None:
            return self._from_the_file(layer, f"{layer.type} ran in {layer.precision}")
        name, op_type, why = record["name"], record["type"], why_in(record)
        if self._finishes(layer, name):
            return f"finishes {name!r} (bias, activation) in {layer.precision}, as a layer of its own", ""
        if record["quantized"]:
            fact = f"the program computes {name!r} on integers, but {self.engine.package} computed it in {layer.precision}"
            return self._from_the_file(layer, fact)
        if isinstance(why, ComputedWith):
            return f"{op_type} ran by itself in {layer.precision}, not together with {why.host!r}", ""
        return f"{op_type} {name!r} stays float in the program: {record['reason']}", self._remedy(op_type, why)

    def _finishes(self, layer: ProfiledLayer, op: str) -> bool:
        """Is it only the end of an op whose convolution or product is another layer?"""
        others = (self.layers[name] for name in layer.reads)
        return layer.role != "product" and any(other.role == "product" and op in other.ops for other in others)

    def _record(self, layer: ProfiledLayer) -> Any:
        """The program's record of the layer; for one without a name, of an op of its type that stayed float."""
        for name in layer.ops:
            if name in self.records:
                return self.records[name]
        kind = layer.given.type.lower() if layer.given is not None else ""
        floats = [record for record in self.records.values() if not record["quantized"]]
        return next((record for record in floats if record["type"].replace("_", "") == kind), None)

    def _from_the_file(self, layer: ProfiledLayer, fact: str) -> tuple[str, str]:
        """The fact with what the file shows about it, and what would remove it."""
        given = layer.given
        if given is None:
            return fact, ""
        weight = given.weight()
        if weight is not None and not given.weight_is_int8():
            return f"{fact}: its weights stand in the file as {weight.dtype}, not as int8", ""
        if not given.input_is_rounded():
            return f"{fact}: its input is not quantized in the file", ""
        if self.engine.rounds_products and layer.role == "product":
            only = f"{self.engine.title} computes on integers only where the result is quantized at once"
            if reader := given.unrounded_reader():
                return f"{fact}: {reader.type} reads its result as it is, and {only}", self._prepare_for_this_engine(reader)
            if not given.readers:
                return f"{fact}: its result leaves the model in float, and {only}", ""
        return f"{fact}, though the file quantizes its input", ""

    def _remedy(self, op_type: str, why: Reason | None) -> str:
        if isinstance(why, SkipPattern):
            return "taking the pattern out of not_quant_pattern"
        if isinstance(why, NotListed):
            if op_type in self.engine.op_types:
                return f"adding {op_type!r} to quantize_op_types"
            return f"nothing, {self.engine.package} is not known to run {op_type} in int8"
        return ""

    def _prepare_for_this_engine(self, reader: FileNode) -> str:
        """A program for an engine that adds within a convolution does not quantize before the addition; others need it."""
        prepared = ENGINES.get(self.origin.get("moved", {}).get("made_for", self.origin.get("target")))
        if reader.type == "Add" and prepared is not None and prepared.fuses_add and not self.engine.fuses_add:
            return f"preparing the program for {self.engine.package}, with target={self.engine.name!r}"
        return ""

    # what stands between layers

    def rounding(self, layer: ProfiledLayer) -> tuple[str, str]:
        """Quantizing and dequantizing as a layer of its own."""
        before, behind = self._neighbours(layer, lambda other: other.reads), self._neighbours(layer, self._reader_names)
        after_float = next((other for other in before if other.is_float), None)
        for_float = next((other for other in behind if other.is_float), None)
        if layer.given is not None and layer.given.inputs and layer.given.inputs[0].type == "Constant":
            what = "turns int8 weights back into float in every call"
            return (f"{what} for {self._named(for_float)}", self._goes_with(for_float)) if for_float else (what, "")
        if layer.precision in FLOAT:
            if not before:
                return "quantizes the model's input", "nothing, it arrives in float"
            return f"quantizes what {self._named(before[0])} gives", self._goes_with(after_float)
        reader = self._named(for_float or behind[0]) if behind else "the model's output"
        return f"turns integers back into float for {reader}", self._goes_with(for_float)

    def _neighbours(self, layer: ProfiledLayer, names: Callable[[ProfiledLayer], Iterable[str]]) -> list[ProfiledLayer]:
        """The layers before or behind, looking through reorders."""
        near = [self.layers[name] for name in names(layer)]
        return [
            neighbour for other in near for neighbour in (self._neighbours(other, names) if other.is_reorder else [other])
        ]

    def _reader_names(self, layer: ProfiledLayer) -> list[str]:
        return [reader.name for reader in self.readers[layer.name]]

    def reorder(self, layer: ProfiledLayer) -> tuple[str, str]:
        """A tensor stored another way: in another precision, or in another order."""
        before = self.layers[layer.reads[0]] if layer.reads else None
        behind = next(iter(self.readers[layer.name]), None)
        if before is not None and before.writes != layer.writes:
            in_float = next((other for other in (before, behind) if other is not None and other.is_float), None)
            return f"turns {before.writes} into {layer.writes}", self._goes_with(in_float)
        order = f" from {before.layout}" if before is not None and before.layout and layer.layout else ""
        order += f" to {layer.layout}" if layer.layout else ""
        return f"changes the order of the values in memory{order}", "nothing in the model, the engine put it there by itself"

    def _named(self, layer: ProfiledLayer) -> str:
        return f"{self.titles[layer.name]!r} ({layer.type}, {layer.precision})"

    def _goes_with(self, layer: ProfiledLayer | None) -> str:
        return "" if layer is None else f"running {self.titles[layer.name]!r} in int8"
