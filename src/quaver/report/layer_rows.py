"""Every layer of a run as one row: what the program, the analysis, the engine and the comparison with it say."""

from dataclasses import dataclass, field

from quaver.analysis.findings import LayerStatistics, TensorStatistics, WeightStatistics
from quaver.program import OpRecord
from quaver.program.history import PassApplied
from quaver.program.reason import ComputedWith, Folded
from quaver.report.gather import Record, Run, measured


@dataclass
class Row:
    """A layer. ``precision`` is what the program says: int8, float, or fused (part of ``host``).

    ``index`` counts all ops, ``place`` those that are not part of another, from 1. ``error_of_input``: it has a weight, and
    ``sqnr_db`` is without it, because of weights a frozen program has only the integers.
    """

    index: int
    name: str
    type: str
    source: str = ""
    scope: str = ""
    precision: str = "float"
    host: str = ""
    reason: str = ""
    fused: list[str] = field(default_factory=list)
    thresholds: dict[str, list[float]] = field(default_factory=dict)
    bits: str = ""
    sqnr_db: float | None = None
    input_sqnr_db: float | None = None
    weight_sqnr_db: float | None = None
    error_of_input: bool = False
    clipped: float | None = None
    zeros: float | None = None
    only: float | None = None
    without: float | None = None
    tensors: list[str] = field(default_factory=list)
    spread: TensorStatistics | None = None
    weight: str = ""
    executed: str = ""
    kernel: str = ""
    microseconds: float | None = None
    share: float | None = None
    differ: float | None = None
    place: int = 0

    @property
    def is_float(self) -> bool:
        """Whether it computes in float: as the engine says, or else the program."""
        return self.executed.startswith(("f", "bf")) if self.executed else self.precision == "float"


def rows_of(run: Run) -> list[Row]:
    """The layers in the order of the network."""
    rows = _from_program(run) or _from_analysis(run)
    by_name = {row.name: row for row in rows}
    for row in rows:
        if row.host in by_name:
            by_name[row.host].fused.append(row.type)
    for place, row in enumerate((row for row in rows if row.precision != "fused"), 1):
        row.place = place
    if run.analysis is not None:
        tensors = {tensor.name: tensor for tensor in run.analysis.tensors}
        weights = {weight.name: weight for weight in run.analysis.weights}
        for layer in run.analysis.layers:
            if layer.name in by_name:
                _add_statistics(by_name[layer.name], layer, tensors, weights)
                by_name[layer.name].error_of_input = layer.weight is not None and not run.analysis.knows_weight_noise
    for row in rows:
        row.bits = row.bits or _bits(row, run.program.history if run.program is not None else ())
    with run.troubled_by("bench"):
        _add_execution(run.bench, by_name)
    with run.troubled_by("verify"):
        _add_differences(run.verify, by_name)
    return rows


def _from_program(run: Run) -> list[Row]:
    if run.program is None:
        return []
    records = list(run.program.records) or [OpRecord(op.name, op.type, "", "", False) for op in run.program.ops]
    return [_row(index, record) for index, record in enumerate(records)]


def _row(index: int, record: OpRecord) -> Row:
    host = record.why.host if isinstance(record.why, Folded | ComputedWith) else ""
    return Row(
        index=index,
        name=record.name,
        type=record.type,
        source=record.source,
        scope=record.scope,
        precision="int8" if record.quantized else "fused" if host else "float",
        host=host,
        reason=record.reason,
        thresholds=record.thresholds,
    )


def _from_analysis(run: Run) -> list[Row]:
    if run.analysis is None:
        return []
    return [
        Row(index, layer.name, layer.type, scope=layer.scope, precision="int8")
        for index, layer in enumerate(run.analysis.layers)
    ]


def _add_statistics(
    row: Row, layer: LayerStatistics, tensors: dict[str, TensorStatistics], weights: dict[str, WeightStatistics]
) -> None:
    read = [tensors[name] for name in layer.inputs if name in tensors]
    row.sqnr_db, row.input_sqnr_db, row.weight_sqnr_db = layer.sqnr_db, layer.input_sqnr_db, layer.weight_sqnr_db
    row.tensors = [tensor.name for tensor in read]
    row.weight = layer.weight if layer.weight in weights else ""  # type: ignore[assignment]
    if read:
        row.spread = read[0]
        row.clipped = max(tensor.clipped for tensor in read)
        row.zeros = max(tensor.zeros for tensor in read)
        if not row.thresholds:
            row.thresholds = {"input": [read[0].threshold]}
            if row.weight:
                row.thresholds["weight"] = list(weights[row.weight].thresholds)
    row.only = None if layer.only is None else layer.only.accuracy
    row.without = None if layer.without is None else layer.without.accuracy
    parts = [("W", layer.weight_bits), ("A", layer.activation_bits)]
    row.bits = " ".join(f"{letter}{bits}" for letter, bits in parts if bits is not None)


def _bits(row: Row, passes: tuple[PassApplied, ...]) -> str:
    """Without an analysis: the bits that the passes were asked for, of what an int8 layer rounds."""
    if row.precision != "int8":
        return ""
    has = {"weight": "weight" in row.thresholds, "activation": any(role.startswith("input") for role in row.thresholds)}
    asked = {key: bits for step in reversed(passes) for key, bits in step.options.items()}  # the first pass counts
    return " ".join(f"{n[0].upper()}{asked[f'{n}_bits']}" for n, there in has.items() if there and f"{n}_bits" in asked)


def _add_execution(bench: Record, rows: dict[str, Row]) -> None:
    """Precision and time by the engine's own account, of the first model that is not float."""
    profiles = [profile for profile in bench.get("profiles", []) if profile.get("layers") and not profile.get("is_float")]
    layers = profiles[0]["layers"] if profiles else []
    times = [(str(layer["precision"]), measured(layer["microseconds"]), measured(layer["share"])) for layer in layers]
    for layer, (precision, microseconds, share) in zip(layers, times, strict=True):
        computed = [rows[name] for name in layer.get("ops", []) if name in rows]
        for position, row in enumerate(computed):
            if not row.executed:
                row.executed, row.kernel = precision, str(layer.get("kernel", ""))
            if position == 0:  # one time for several ops: it is the first one's
                row.microseconds = (row.microseconds or 0.0) + microseconds
                row.share = (row.share or 0.0) + share


def _add_differences(verify: Record, rows: dict[str, Row]) -> None:
    """The share of integers that the engine computed differently."""
    layers = verify.get("layers", [])
    shares = {layer["name"]: measured(layer["differ"]) / measured(layer["size"]) for layer in layers if layer["size"]}
    for name in shares.keys() & rows.keys():
        rows[name].differ = shares[name]
