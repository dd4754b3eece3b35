"""`Analysis`: what was found, to look at, to keep, and to start quantizers from."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from quaver.analysis.findings import (
    PERCENTILES,
    LayerStatistics,
    Proposal,
    SensitivitySummary,
    TensorStatistics,
    WeightStatistics,
)
from quaver.analysis.initialise import start_ranges, thresholds_of
from quaver.checking import check, one_of
from quaver.config.recipe import STATISTICS
from quaver.errors import StorageError
from quaver.files import write_atomically
from quaver.formats import Format
from quaver.program import Program, Stage
from quaver.records import MisfitError, decoded

FORMAT = Format(
    "quaver.analysis",
    1,
    "an analysis",
    "quaver analyze",
    if_missing="quaver analyze writes one.",
    if_damaged="Run quaver analyze again.",
)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Statistics of every quantized tensor, weight and layer of a program over ``images`` images.

    ``sensitivity`` is None unless it was asked for, and so are the layers' scores; ``proposal`` likewise. ``never_finite``
    are tensors with NaN or Inf in every batch, which have no statistics.
    """

    quaver: str
    stage: str
    images: int
    batches: int
    moving_rate: float
    tensors: list[TensorStatistics]
    weights: list[WeightStatistics]
    layers: list[LayerStatistics]
    sensitivity: SensitivitySummary | None
    proposal: Proposal | None
    never_finite: list[str] = field(default_factory=list)

    @property
    def knows_weight_noise(self) -> bool:
        """Whether the layers' noise is that of their weights, too: a frozen program has only the integers of these."""
        return self.stage in (Stage.FLOAT.value, Stage.PREPARED.value)

    def tensor(self, name: str) -> TensorStatistics:
        """The activation of this name."""
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def layer(self, name: str) -> LayerStatistics:
        """The layer of this name."""
        return next(layer for layer in self.layers if layer.name == name)

    def worst_first(self) -> list[LayerStatistics]:
        """The layers, those that disturb the output most first; without scores, those with the noisiest result."""

        def noise(layer: LayerStatistics) -> float:
            measured = layer.sqnr_db if layer.only is None else layer.only.sqnr_db
            return float("inf") if measured is None else measured

        return sorted(self.layers, key=noise)

    def not_finite(self) -> dict[str, str]:
        """The tensors and weights in which there is NaN or Inf, by name, and how often, in words."""
        sentences = dict.fromkeys(self.never_finite, "NaN or Inf in every batch, so nothing is known of it")
        for tensor in self.tensors:
            if tensor.not_finite:
                sentences[tensor.name] = f"NaN or Inf in {tensor.not_finite} of {self.batches} batches, which are left out"
        for weight in self.weights:
            if weight.not_finite:
                sentences[weight.name] = f"NaN or Inf in {weight.not_finite} of {weight.size} values, which are left out"
        return sentences

    def initialise(self, program: Program, *, by: str = "moving_max") -> list[str]:
        """Start the ranges of a prepared program's quantizers, and PACT's thresholds, from this; gives the tensors' names.

        ``by``: the ``moving_max`` of each tensor, its ``largest`` value, the ``best_threshold`` (least squared error), or a
        percentile (``p99``), which a few outliers do not move. A clip in front of a weight starts at its largest value.
        """
        return start_ranges(program, self.tensors, self.weights, by)

    def thresholds(self, *, by: str = "moving_max") -> dict[str, float]:
        """What ranges and clips start from, by the names that quantizers have: ``PACT(thresholds=analysis.thresholds())``.

        Where tensors share a quantizer it is the largest of them; a weight's is the largest of its values.
        """
        check("thresholds", {"by": by}, {"by": one_of(*STATISTICS)})
        return thresholds_of(self.tensors, by) | {weight.name: weight.largest for weight in self.weights}

    def save(self, path: str | Path) -> Path:
        """Write the analysis as JSON, in one step."""
        path = Path(path)
        try:
            text = json.dumps(FORMAT.stamp | asdict(self), separators=(",", ":"), allow_nan=False)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, f"{text}\n".encode())
        except (OSError, ValueError) as error:  # ValueError: a figure is NaN or Inf, which JSON does not have
            raise StorageError(f"{path}: the analysis could not be written: {error}.") from error
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Analysis":
        """Read an analysis; a damaged or foreign file is an error that says so."""
        path = Path(path)
        content = FORMAT.read(path)
        try:
            analysis: Analysis = decoded(cls, content)
            _refuse_impossible(analysis)
        except MisfitError as error:
            raise StorageError(f"{path}: {error}. Run quaver analyze again.") from error
        return analysis


def _refuse_impossible(analysis: Analysis) -> None:
    """Ranges start from these numbers: none may be negative, and a name says one thing."""
    for kind in ("tensors", "weights", "layers"):
        names = [statistics.name for statistics in getattr(analysis, kind)]
        if len(names) != len(set(names)):
            raise MisfitError(f"{kind} has a name twice")
    for tensor in analysis.tensors:
        if min(tensor.threshold, tensor.moving_max, tensor.largest, tensor.best_threshold) < 0 or tensor.slot < 0:
            raise MisfitError(f"tensors: {tensor.name!r} has a negative range")
        if {f"{share:g}" for share in PERCENTILES} - set(tensor.percentiles) or min(tensor.percentiles.values()) < 0:
            raise MisfitError(f"tensors: {tensor.name!r} has a percentile that is missing or negative")
    for spread in [tensor.histogram for tensor in analysis.tensors] + [weight.histogram for weight in analysis.weights]:
        if not spread.counts or min(spread.counts) < 0 or not spread.start < spread.end:
            raise MisfitError("a histogram has no bins, no width or a negative count")
