"""``quaver.verify``: is what was trained what runs? The same batches through the simulation and through the real engine."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quaver.errors import InputError, QuaverWarning, StageError
from quaver.export import form_for
from quaver.machine.cpu import cpu
from quaver.measure.accuracy import top_k_hits
from quaver.measure.integers import Inside, simulation
from quaver.passes import QuantizationFreezePass
from quaver.program import Program, Stage
from quaver.runtime import load
from quaver.runtime.artefact import find
from quaver.targets import TARGETS


@dataclass(frozen=True)
class LayerDifference:
    """How a quantized tensor of the engine differs from the simulation's: of ``size`` integers, ``differ``, by at most
    ``largest`` steps.
    """

    name: str
    size: int
    differ: int
    largest: int

    @property
    def share(self) -> float:
        """The part of the integers that differ."""
        return self.differ / self.size if self.size else 0.0


@dataclass(frozen=True)
class Verification:
    """What `verify` found. ``agreement``: the part of the images for which both give the same class;
    with several outputs, for which the largest value of each is in the same place.

    ``largest_difference`` is the largest difference between two outputs, in steps of the output scale (the largest logit
    / 127). Accuracies are None without labels. ``layers`` holds every quantized tensor that was compared; ``worst_layer``
    the one with the largest share of differing integers and ``first_layer`` the first, in the order of the graph, that
    differs at all; both None where the engine does not show its inside or nothing differs.
    """

    artefact: str
    engine: str
    cpu: dict[str, Any]
    images: int
    agreement: float
    largest_difference: float
    accuracy_simulated: float | None
    accuracy_deployed: float | None
    top5_simulated: float | None
    top5_deployed: float | None
    layers: list[LayerDifference] = field(default_factory=list)

    @property
    def integers_equal(self) -> float:
        """The smallest share of equal integers at any quantized tensor."""
        return min((1 - layer.share for layer in self.layers), default=1.0)

    @property
    def first_layer(self) -> LayerDifference | None:
        """The first tensor that differs."""
        return next((layer for layer in self.layers if layer.differ), None)

    @property
    def worst_layer(self) -> LayerDifference | None:
        """The tensor that differs most."""
        differing = [layer for layer in self.layers if layer.differ]
        return max(differing, key=lambda layer: layer.share) if differing else None

    def record(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        layers = {"first_layer": self.first_layer, "worst_layer": self.worst_layer}
        named = {name: None if layer is None else asdict(layer) for name, layer in layers.items()}
        return asdict(self) | named | {"integers_equal": self.integers_equal}


def verify(
    program: Program, artefact: str | Path, batches: Iterable[Any], *, layers: bool = True, threads: int = 1
) -> Verification:
    """Run ``batches`` through ``program`` and through ``artefact`` on its engine, and compare.

    ``program`` is prepared, frozen, int8 or mobile; each file is compared with the program in its engine's arithmetic, a
    ``.pte`` file with the mobile form. A batch is an array or tensor of images, or a pair of images and labels; for a
    model with several inputs, a tuple of them stands for the images. With ``layers``
    the integers of every quantized tensor are compared as well, where the engine shows them (not for ``.pte``).
    """
    file = find(artefact)
    run = load(file, threads)
    layers = layers and file.suffix != ".pte"
    comparison = _Comparison(_frozen_form(program, file), layers=layers)
    inside = Inside(file, comparison.simulation.scales, threads) if layers else None
    for batch in batches:
        inputs, labels = _split(batch, len(run.inputs))
        outputs, integers = comparison.simulation.run(*map(torch.as_tensor, inputs))
        arrays = [np.asarray(value) for value in inputs]
        got = run(*arrays)
        comparison.outputs([one.numpy() for one in outputs], got if isinstance(got, tuple) else (got,), labels)
        if inside is not None:
            comparison.integers(integers, inside.run(*arrays)[1])
    return comparison.result(str(file), run.engine)


def _frozen_form(program: Program, file: Path) -> Program:
    """The program whose arithmetic the file must have."""
    if not isinstance(program, Program) or program.stage is Stage.FLOAT:
        raise StageError("verify: takes a quantized program: what quant_aware, convert or quaver.load gave.")
    if program.stage is Stage.PREPARED:
        program = QuantizationFreezePass().apply(program.clone() if program.for_test else program)
    return form_for(program, next(target for target in TARGETS.values() if target.suffix == file.suffix))


def _split(batch: Any, inputs: int) -> tuple[list[Any], NDArray[np.int64] | None]:
    """What the model takes, and the labels; with several inputs, a tuple of them stands where images stand."""
    labels = None
    if isinstance(batch, tuple | list) and len(batch) == 2 and (inputs == 1 or isinstance(batch[0], tuple | list)):
        batch, labels = batch[0], np.asarray(batch[1], np.int64)
    if inputs == 1 and isinstance(batch, Tensor | np.ndarray):
        return [batch], labels
    if inputs > 1 and isinstance(batch, tuple | list) and len(batch) == inputs:
        return list(batch), labels
    if inputs > 1:
        raise InputError(f"verify: the model has {inputs} inputs: a batch is a tuple of them, or a pair (tuple, labels).")
    raise InputError(f"verify: a batch is images, or a pair (images, labels), not {type(batch).__name__}.")


def _shapes(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join(str(shape) for shape in shapes)


class _Comparison:
    """Counts over all batches."""

    def __init__(self, program: Program, *, layers: bool) -> None:
        self.simulation = simulation(program, inside=layers)
        self.images = self.agreeing = self.labelled = 0
        self.hits = np.zeros(4, np.int64)  # top-1 and top-5, simulated and deployed
        self.difference = self.magnitude = 0.0
        self.counts = {name: np.zeros(3, np.int64) for name in self.simulation.scales}
        self.seen: set[str] = set()

    def outputs(
        self, simulated: Sequence[NDArray[Any]], deployed: Sequence[NDArray[Any]], labels: NDArray[np.int64] | None
    ) -> None:
        ours, theirs = [one.shape for one in simulated], [one.shape for one in deployed]
        if ours != theirs:
            raise InputError(
                f"verify: the program gives {_shapes(ours)} and the artefact {_shapes(theirs)}: they are not of one model."
            )
        pairs = [
            (one.reshape(len(one), -1), other.reshape(len(other), -1))
            for one, other in zip(simulated, deployed, strict=True)
        ]
        self.images += len(pairs[0][0])
        agrees = [one.argmax(1) == other.argmax(1) for one, other in pairs]
        self.agreeing += int(np.logical_and.reduce(agrees).sum())
        for one, other in pairs:
            self.difference = max(self.difference, float(np.abs(one - other).max(initial=0.0)))
            self.magnitude = max(self.magnitude, float(np.abs(one).max(initial=0.0)))
        if labels is not None:
            self.labelled += len(labels)
            both = [(values, k) for values in pairs[0] for k in (1, 5)]
            self.hits += [int(top_k_hits(values, labels, k).sum()) for values, k in both]

    def integers(self, simulated: dict[str, NDArray[Any]], deployed: dict[str, NDArray[Any]]) -> None:
        for name, theirs in deployed.items():
            distance = np.abs(simulated[name] - theirs)
            seen = self.counts[name]
            seen += [distance.size, int((distance > 0).sum()), 0]
            seen[2] = max(seen[2], int(distance.max(initial=0)))
            self.seen.add(name)

    def result(self, artefact: str, engine: str) -> Verification:
        if not self.images:
            raise InputError("verify: no batches were given, so nothing was compared.")
        if 0 < self.labelled < self.images:
            warnings.warn("verify: some batches had no labels; accuracies count the others.", QuaverWarning, stacklevel=3)
        accuracies = [float(hits) / self.labelled if self.labelled else None for hits in self.hits]
        layers = [LayerDifference(name, *map(int, self.counts[name])) for name in self.counts if name in self.seen]
        return Verification(
            artefact=artefact,
            engine=engine,
            cpu=asdict(cpu()),
            images=self.images,
            agreement=self.agreeing / self.images,
            largest_difference=self.difference / (self.magnitude / 127) if self.magnitude else 0.0,
            accuracy_simulated=accuracies[0],
            top5_simulated=accuracies[1],
            accuracy_deployed=accuracies[2],
            top5_deployed=accuracies[3],
            layers=layers,
        )
