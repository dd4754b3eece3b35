"""How far an engine's outputs agree with the simulation's, each counted in what it holds: classes, pixels or values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quaver.export.comparison import distances

Unit = Literal["images", "pixels", "values"]

TASKS: dict[str, Unit] = {
    "classification": "images",
    "segmentation": "pixels",
    "detection": "values",
    "embedding": "values",
    "regression": "values",
}
"""What the outputs of a task are counted in."""

_SAME: dict[Unit, str] = {
    "images": "have the same class",
    "pixels": "have the same class",
    "values": "are within a step (1/127 of the largest beside it)",
}
_PICTURE = (1, 3, 4)
"""Channels of grey, RGB and RGBA pictures: a map with another number of them holds a score per class."""


@dataclass(frozen=True)
class OutputAgreement:
    """How far an output agrees: ``agreeing`` of ``counted`` images, pixels or values.

    Images and pixels agree where both have the same class. Values agree where they are a step or less apart: 1/127 of the
    largest value of the same image and channel; whole numbers where they are equal. ``relative_error`` is the length of the
    difference over the length of the output.
    """

    name: str
    unit: Unit
    counted: int
    agreeing: int
    relative_error: float

    @property
    def agreement(self) -> float:
        """The part that agrees."""
        return self.agreeing / self.counted if self.counted else 1.0

    def words(self) -> str:
        """What was counted, and how much of it agrees."""
        return f"{self.agreement:.4%} of {self.counted:,} {self.unit} {_SAME[self.unit]}"


class OutputCounts:
    """What is counted of one output, over all batches."""

    def __init__(self, name: str, unit: Unit) -> None:
        self.name, self.unit = name, unit
        self.counted = self.agreeing = 0
        self.signal = self.noise = 0.0

    def add(self, ours: NDArray[Any], theirs: NDArray[Any]) -> None:
        """Count a batch."""
        agrees = _agrees_in_value(ours, theirs) if self.unit == "values" else ours.argmax(1) == theirs.argmax(1)
        self.counted += agrees.size
        self.agreeing += int(agrees.sum())
        numbers = np.nan_to_num(ours.astype(np.float64))
        self.signal += float((numbers**2).sum())
        self.noise += float((distances(ours, theirs) ** 2).sum())

    def result(self) -> OutputAgreement:
        """What was counted."""
        relative_error = (self.noise / self.signal) ** 0.5 if self.signal else float(self.noise > 0)
        return OutputAgreement(self.name, self.unit, self.counted, self.agreeing, relative_error)


def unit_of(output: NDArray[Any], task: str | None) -> Unit:
    """What an output is counted in: as the task says where its shape allows it, else as its shape suggests."""
    has_scores = output.dtype.kind == "f" and output.ndim >= 2 and output.shape[1] > 1
    if not has_scores:
        return "values"
    if task is not None:
        unit = TASKS[task]
        return unit if output.ndim == 2 or unit != "images" else "values"
    if output.ndim == 2:
        return "images"
    return "pixels" if output.ndim == 4 and output.shape[1] not in _PICTURE else "values"


def _agrees_in_value(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[np.bool_]:
    if ours.dtype.kind != "f":
        return np.asarray(ours == theirs)
    channels = (*ours.shape[: min(ours.ndim - 1, 2)], -1) if ours.ndim else (1, 1)
    size = np.where(np.isfinite(ours), np.abs(ours), 0).reshape(channels).max(-1, keepdims=True, initial=0.0)
    agrees: NDArray[np.bool_] = distances(ours, theirs).reshape(channels) <= size / 127
    return agrees


def counts_for(names: Sequence[str], outputs: Sequence[NDArray[Any]], task: str | None) -> list[OutputCounts]:
    """A count for each output."""
    return [OutputCounts(name, unit_of(output, task)) for name, output in zip(names, outputs, strict=True)]
