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

from quaver.checking import check, number, one_of
from quaver.engines import Engine, engine_of
from quaver.errors import InputError, QuaverWarning, StageError
from quaver.export import form_for
from quaver.export.comparison import Allowed, Comparison, LayerDifference
from quaver.machine.cpu import cpu
from quaver.measure.accuracy import top_k_hits
from quaver.measure.output_agreement import TASKS, OutputAgreement, OutputCounts, Unit, counts_for
from quaver.passes import QuantizationFreezePass
from quaver.program import Program, Stage
from quaver.program.batch_inputs import read_batch
from quaver.runtime import Runner, load
from quaver.runtime.artefact import find, provenance

SHOWN = 5  # failures in words; `failures` holds all
_OTHER_LABELS = "labels are not a class for each image, so there is no accuracy"


@dataclass(frozen=True)
class Verification:
    """What `verify` found. ``failures`` says, tensor by tensor, where the engine is not what was trained; `passed`: nowhere.

    ``agreement``: of the output that agrees least, the part on which both agree. What it is a part of is said by
    ``output_agreement``, which holds every output: images or pixels for which both give the same class, or values that are
    within a step. It decides where outputs are class scores.

    ``largest_difference`` is the largest difference between two outputs, in steps of the output scale (the largest logit
    / 127). Accuracies are None without labels. ``layers`` holds every quantized tensor that was compared, ``outputs`` every
    output; ``worst_layer`` the tensor with the largest share of differing integers and ``first_layer`` the first, in the
    order of the graph, that differs at all; both None where the engine does not show its inside or nothing differs.
    ``excluded`` counts images that hold NaN or Inf themselves: they were left out. ``note`` says where less could be asked.
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
    outputs: list[LayerDifference] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    excluded: int = 0
    note: str = ""
    output_agreement: list[OutputAgreement] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the engine computes what was trained."""
        return not self.failures

    @property
    def agreement_unit(self) -> Unit:
        """What ``agreement`` is a part of."""
        return min(self.output_agreement, key=lambda output: output.agreement).unit

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
        return asdict(self) | named | {name: getattr(self, name) for name in ("agreement_unit", "integers_equal", "passed")}

    def __str__(self) -> str:
        """What was compared, how much of it differs, and the verdict, a line each."""
        return "\n".join([*self.lines(), *verdict(self.failures)])

    def lines(self) -> list[str]:
        """What was compared and how much of it differs."""
        rows = [("images", f"{self.images:,}{self._left_out()}")]
        for title, top1, top5 in (
            ("simulated", self.accuracy_simulated, self.top5_simulated),
            ("deployed", self.accuracy_deployed, self.top5_deployed),
        ):
            if top1 is not None and top5 is not None:
                rows.append((title, f"top-1 {top1:.2%}  top-5 {top5:.2%}"))
        rows += [
            *self._agreements(),
            ("outputs", f"differ by at most {self.largest_difference:.3g} steps of the output scale"),
            *self._integers(),
        ]
        return [f"{title:10} {text}" for title, text in [*rows, *([("note", self.note)] if self.note else [])]]

    def _left_out(self) -> str:
        return f" ({self.excluded:,} that hold NaN or Inf were left out)" if self.excluded else ""

    def _agreements(self) -> list[tuple[str, str]]:
        several = len(self.output_agreement) > 1
        return [
            (
                "agreement",
                (f"{output.name!r}: " if several else "")
                + output.words()
                + (f"; relative error {output.relative_error:.2g}" if output.unit == "values" else ""),
            )
            for output in self.output_agreement
        ]

    def _integers(self) -> list[tuple[str, str]]:
        first, worst = self.first_layer, self.worst_layer
        if not self.layers:
            return [("integers", "not compared: only the outputs were")]
        if first is None or worst is None:
            return [("integers", f"equal at all {len(self.layers)} quantized tensors")]
        differ = sum(layer.differ > 0 for layer in self.layers)
        return [
            ("integers", f"differ at {differ} of {len(self.layers)} quantized tensors"),
            *(
                (
                    title,
                    f"{layer.name!r}: {layer.differ} of {layer.size} integers differ ({layer.share:.2e}), "
                    f"by at most {layer.largest}",
                )
                for title, layer in (("first", first), ("worst", worst))
            ),
        ]


def verdict(failures: list[str]) -> list[str]:
    """Passed; or failed, and where: a line each."""
    if not failures:
        return ["passed: the engine computes what was trained"]
    more = [f"  and {len(failures) - SHOWN} more"] if len(failures) > SHOWN else []
    return ["FAILED: what runs is not what was trained", *(f"  {failure}" for failure in failures[:SHOWN]), *more]


def verify(
    program: Program,
    artefact: str | Path,
    batches: Iterable[Any],
    *,
    layers: bool = True,
    threads: int = 1,
    threshold: float = 0.999,
    allow_steps: float | None = None,
    allow_share: float = 0.0,
    task: str | None = None,
) -> Verification:
    """Run ``batches`` through ``program`` and through ``artefact`` on its engine, and compare.

    ``program`` is prepared, frozen, int8 or mobile; each file is compared with the program in its engine's arithmetic, a
    ``.pte`` file with the mobile form. A batch is an array or tensor of images, or a pair of images and labels; for a
    model with several inputs, a tuple of them or a dict by name stands for the images. A file that takes bytes
    (``export(image=…)``) is given uint8 images as it takes them, and the program what they stand for. With ``layers``
    the integers of every quantized tensor are compared as well, where the engine shows them (not for ``.pte``).

    The result has `passed` and ``failures``. Every tensor counts: to the last bit where the engine's arithmetic is simulated
    so; elsewhere (behind a sigmoid, say, or a layer in float) an integer may be another where the value it was rounded from
    lies within 1/100 step of the tie. ``allow_steps`` puts another bound in the place of both, ``allow_share`` lets a part
    of every tensor's integers differ by more.

    Outputs agree in what they hold: images with the same class (two dimensions), pixels with the same class (maps), values
    within a step (all others). ``task`` says what shapes alone cannot: classification, segmentation, detection, embedding or
    regression. Where outputs are class scores, ``threshold`` is the least agreement.
    """
    options = {"threshold": threshold, "allow_share": allow_share, "allow_steps": allow_steps or 0}
    check("verify", options, {"threshold": number(0, 1), "allow_share": number(0, 1), "allow_steps": number(0)})
    if task is not None:
        check("verify", {"task": task}, {"task": one_of(*TASKS)})
    file = find(artefact)
    run = load(file, threads)
    engine = engine_of(file, provenance(file))
    ready = _frozen_form(program, engine)
    allowed = Allowed(allow_steps, allow_share)
    comparison = Comparison(ready, file, engine, run, allowed, layers=layers, threads=threads, image=run.image)
    tally = _Tally(comparison.output_names, task)
    for batch in batches:
        tensors, labels = read_batch(batch, [port.name for port in run.inputs], "verify")
        tensors, labels, excluded = _without_not_finite(tensors, labels, run)
        tally.excluded += excluded
        if not excluded or tensors[0].shape[0]:
            images = len(tensors[0]) if tensors[0].dim() else 1
            tally.add(images, *comparison.add(*tensors), labels)
    return tally.result(str(file), comparison, threshold)


def _frozen_form(program: Program, engine: Engine) -> Program:
    """The program whose arithmetic the file must have."""
    if not isinstance(program, Program) or program.stage is Stage.FLOAT:
        raise StageError("verify: takes a quantized program: what quant_aware, convert or quaver.load gave.")
    if program.stage is Stage.PREPARED:
        program = QuantizationFreezePass().apply(program.clone() if program.for_test else program)
    return form_for(program, engine)


def _without_not_finite(tensors: list[Tensor], labels: Any, run: Runner) -> tuple[list[Tensor], Any, int]:
    """The images without those that hold NaN or Inf themselves, of which nothing is to be learnt, and how many those are."""
    bad = [~torch.isfinite(tensor) for tensor in tensors]
    if not any(bool(where.any()) for where in bad):
        return tensors, labels, 0
    for port, where in zip(run.inputs, bad, strict=True):
        if not port.shape or (port.shape[0] is not None and bool(where.any())):
            raise InputError(f"verify: input {port.name!r} holds NaN or Inf, and its batch is fixed. Leave this batch out.")
    good = ~torch.stack([where.flatten(1).any(1) for where in bad]).any(0)
    classes = _classes(labels)
    return [tensor[good] for tensor in tensors], labels if classes is None else classes[good.numpy()], int((~good).sum())


class _Tally:
    """What both make of the images, counted over all batches."""

    def __init__(self, names: Sequence[str], task: str | None) -> None:
        self.names, self.task = names, task
        self.images = self.labelled = self.excluded = 0
        self.hits = np.zeros(4, np.int64)  # top-1 and top-5, simulated and deployed
        self.magnitude = 0.0
        self.outputs: list[OutputCounts] = []
        self.has_other_labels = False

    def add(self, images: int, simulated: Sequence[NDArray[Any]], deployed: Sequence[NDArray[Any]], labels: Any) -> None:
        """Count a batch."""
        self.images += images
        self.outputs = self.outputs or counts_for(self.names, simulated, self.task)
        for output, ours, theirs in zip(self.outputs, simulated, deployed, strict=True):
            output.add(ours, theirs)
            self.magnitude = max(self.magnitude, float(np.abs(ours).max(initial=0.0)))
        if labels is None:
            return
        classes = _classes(labels)
        if classes is None or self.outputs[0].unit != "images" or len(classes) != len(simulated[0]):
            self.has_other_labels = True
            return
        self.labelled += len(classes)
        both = [(values, k) for values in (simulated[0], deployed[0]) for k in (1, 5)]
        self.hits += [int(top_k_hits(values, classes, k).sum()) for values, k in both]

    def result(self, artefact: str, comparison: Comparison, threshold: float) -> Verification:
        """The findings, and the verdict."""
        if not self.images and self.excluded:
            raise InputError(f"verify: all {self.excluded} images hold NaN or Inf, so nothing was compared.")
        if not self.images:
            raise InputError("verify: no batches were given, so nothing was compared.")
        if 0 < self.labelled < self.images:
            warnings.warn("verify: some batches had no labels; accuracies count the others.", QuaverWarning, stacklevel=3)
        accuracies = [float(hits) / self.labelled if self.labelled else None for hits in self.hits]
        outputs = [output.result() for output in self.outputs]
        return Verification(
            artefact=artefact,
            engine=comparison.run.engine,
            cpu=asdict(cpu()),
            images=self.images,
            agreement=min(output.agreement for output in outputs),
            largest_difference=comparison.largest_difference / (self.magnitude / 127 or 1),
            accuracy_simulated=accuracies[0],
            top5_simulated=accuracies[1],
            accuracy_deployed=accuracies[2],
            top5_deployed=accuracies[3],
            layers=comparison.layers(),
            outputs=comparison.results(),
            failures=comparison.failures() + self._too_little_agreement(outputs, threshold),
            excluded=self.excluded,
            note="; ".join(filter(None, [comparison.note, _OTHER_LABELS if self.has_other_labels else ""])),
            output_agreement=outputs,
        )

    def _too_little_agreement(self, outputs: list[OutputAgreement], threshold: float) -> list[str]:
        """Of outputs that are class scores; maps may be others, unless the task says what they are."""
        deciding = ("images",) if self.task is None else ("images", "pixels")
        too_little = [output for output in outputs if output.unit in deciding and output.agreement < threshold]
        return [f"agreement {output.agreement:.4%} is below {threshold:.4%}" for output in too_little]


def _classes(labels: Any) -> NDArray[np.int64] | None:
    """Labels, where they are a class for each image: not boxes, masks or numbers to be predicted."""
    try:
        classes = np.asarray(labels)
    except (ValueError, TypeError):
        return None
    return classes.astype(np.int64) if classes.ndim == 1 and classes.dtype.kind in "iu" else None
