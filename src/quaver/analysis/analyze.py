"""``quaver.analyze``: look at every quantized tensor, weight and layer of a program, in one pass over the data."""

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from quaver.analysis.analysis import Analysis
from quaver.analysis.arguments import Call, example_call, image_error_context, labels_of, on_its_device, prepared
from quaver.analysis.findings import LayerStatistics, Proposal, SensitivitySummary, TensorStatistics
from quaver.analysis.initialise import start
from quaver.analysis.interpreter import WatchingInterpreter
from quaver.analysis.layer_errors import statistics_of_layers
from quaver.analysis.sampling import Reservoir
from quaver.analysis.sensitivity import Scoring, propose, quantized_ops, refuse_not_finite
from quaver.analysis.sites import Site, activations, weights
from quaver.analysis.tensor_statistics import Accumulator, statistics_of
from quaver.analysis.weight_statistics import statistics_of_weight
from quaver.checking import Rule, check, rate, whole
from quaver.config import QuantConfig
from quaver.errors import ConfigError, InputError, StageError
from quaver.program import Program, Stage
from quaver.program.batch_inputs import read_batch

Progress = Callable[[str, int, int | None], None]
"""Told what is being done, how much of it is done, and of how much, if that is known."""

SCORED_TOGETHER = 64
"""Images per batch of the sensitivity analysis."""


def analyze(
    program_or_model: nn.Module,
    batches: Iterable[Any],
    config: QuantConfig | Mapping[str, Any] | None = None,
    *,
    moving_rate: float = 0.999,
    sensitivity_images: int = 0,
    target_drop: float | None = None,
    on_progress: Progress = lambda what, done, total: None,
) -> Analysis:
    """Statistics of every quantized tensor, weight and layer, from one pass over ``batches``; nothing is changed.

    A batch is images, or a pair of images and labels; for a model with several inputs, a tuple of them or a dict by name
    stands for the images, and labels may also come last in the tuple, or be called ``labels`` in the dict. A float
    model or program is analysed where ``config`` would quantize it; a prepared one with the ranges it has, as the integer
    network that it is; a frozen one likewise.

    ``sensitivity_images``: on how many images, drawn from the batches, the network is then run with only each layer
    quantized, and with all others; 0 leaves this out. With ``target_drop`` (0.01 is one point of accuracy) layers to leave
    float are proposed.
    """
    rules = {"moving_rate": rate(), "sensitivity_images": whole(0), "target_drop": _drop()}
    given = {"moving_rate": moving_rate, "sensitivity_images": sensitivity_images, "target_drop": target_drop}
    check("analyze", given, rules)
    if target_drop is not None and not sensitivity_images:
        raise ConfigError("analyze: target_drop needs accuracies. Give sensitivity_images, such as 512.")
    example, batches = _peek(program_or_model, batches)
    program, is_own = prepared(program_or_model, config, example, "analyze")
    if sensitivity_images and not program.stage.trains:
        raise StageError(
            f"analyze: the program is {program.stage.value} and has no float layers to compare with. Analyse the prepared "
            "program for sensitivity, or set sensitivity_images=0."
        )
    strange = {p.dtype for p in program.parameters() if p.is_floating_point()} - {torch.float32}
    if sensitivity_images and strange:
        raise InputError(
            f"analyze: the model has parameters in {strange.pop()}, and networks with and without int8 are compared in "
            "torch.float32. Give model.float(), and such images, or set sensitivity_images=0."
        )
    view = program.clone(for_test=True)
    sites = activations(view)
    accumulator, kept = Accumulator(sites, moving_rate), Reservoir(sensitivity_images)
    if sensitivity_images:
        _refuse_without_batch(view)
        examples, _ = _read(view, example[0] or example[1])
        if all(torch.isfinite(tensor).all() for tensor in examples):
            refuse_not_finite(view, sites, [(examples, None)])  # now, not after the pass
    images = _pass(view, sites, accumulator, kept, batches, on_progress)
    measured = [statistics_of(site, accumulator.tallies[site.name]) for site in sites]
    tensors = [tensor for tensor in measured if tensor is not None]
    weight_statistics = [statistics_of_weight(weight) for weight in weights(view)]
    layers = statistics_of_layers(view, sites, tensors, weight_statistics)
    summary, proposal = None, None
    if sensitivity_images:
        ready = with_ranges(program if is_own else copy.deepcopy(program), tensors).clone(for_test=True)
        if not kept.kept:
            raise InputError("analyze: every image has NaN or Inf in it, so there is none to run the network on.")
        refuse_not_finite(view, sites, kept.batches(SCORED_TOGETHER))
        scoring = Scoring(ready, kept.batches(SCORED_TOGETHER))
        layers, summary, proposal = _scored(scoring, layers, target_drop, on_progress)
        summary = replace(summary, left_out=kept.not_finite)
    from quaver import __version__

    return Analysis(
        quaver=__version__,
        stage=Stage.FLOAT.value if is_own else program.stage.value,
        images=images,
        batches=accumulator.batches,
        moving_rate=moving_rate,
        tensors=tensors,
        weights=weight_statistics,
        layers=layers,
        sensitivity=summary,
        proposal=proposal,
        never_finite=[site.name for site in sites if accumulator.tallies[site.name].is_never_finite],
    )


def _drop() -> Rule:
    def allows(value: Any) -> bool:
        return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)

    return Rule("a share from 0 to 1, such as 0.01 for one point of accuracy", allows)


def _peek(model: nn.Module, batches: Iterable[Any]) -> tuple[Call, Iterable[Any]]:
    """An example of how the model is called, and all batches."""
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        raise InputError("analyze: no batches were given, so there is nothing to look at.")
    return example_call(model, first, "analyze"), _joined([first], rest)


def _joined(first: list[Any], rest: Iterator[Any]) -> Iterator[Any]:
    """`itertools.chain`, which would hold on to the first batch until the end."""
    yield first.pop()
    yield from rest


def _pass(
    program: Program,
    sites: list[Site],
    accumulator: Accumulator,
    kept: Reservoir,
    batches: Iterable[Any],
    on_progress: Progress,
) -> int:
    """The one pass over the data; gives the number of images."""
    network = WatchingInterpreter(program, sites, accumulator.look, rounding=not program.unseen())
    images = 0
    for batch in batches:
        inputs, labels = _read(program, batch)
        count = _images_in(program, inputs)
        labels = labels_of(labels, count, "analyze")
        with image_error_context("analyze", inputs[0]):
            network.outputs(inputs)
        accumulator.end_batch()
        kept.offer(inputs, labels)
        images += count
        on_progress("statistics", accumulator.batches, None)
    return images


def _read(program: Program, batch: Any) -> tuple[list[Tensor], Any]:
    """What the program takes of a batch, where its tensors are, and the labels."""
    inputs, labels = read_batch(batch, [tensor.name for tensor in program.signature.tensors], "analyze")
    return [on_its_device(program, tensor) for tensor in program.signature.checked(inputs)], labels


def _images_in(program: Program, inputs: list[Tensor]) -> int:
    """How many images a batch has: the length of the first input that may have any, else of the first."""
    leaves = program.signature.tensors
    return len(next((tensor for tensor, leaf in zip(inputs, leaves, strict=True) if leaf.free_batch), inputs[0]))


def _refuse_without_batch(program: Program) -> None:
    """Raise if an input is the same for all images: those drawn from several batches can have no common one."""
    fixed = [tensor.name for tensor in program.signature.tensors if not tensor.free_batch]
    if program.signature.dynamic_batch and fixed:
        raise InputError(
            f"analyze: input {fixed[0]!r} has no batch dimension, and the sensitivity analysis puts images of several "
            "batches together. Set sensitivity_images=0."
        )


def with_ranges(program: Program, tensors: list[TensorStatistics]) -> Program:
    """The program, with a range for every quantizer that has seen no data."""
    unseen = set(program.unseen())
    for tensor in tensors:
        if tensor.quantizer in unseen:
            start(program.quantizer(tensor.quantizer), tensor.slot, tensor.moving_max)
    return program


def _scored(
    scoring: Scoring, layers: list[LayerStatistics], target_drop: float | None, on_progress: Progress
) -> tuple[list[LayerStatistics], SensitivitySummary, Proposal | None]:
    """Each layer with its scores, what to compare them with, and a proposal if one is wanted."""
    if target_drop is not None and not scoring.logits:
        raise ConfigError("analyze: target_drop is of accuracy, which needs a row of logits per image as first output.")
    ops = quantized_ops(scoring.program)
    names = [op.name for op in ops]
    summary = SensitivitySummary(
        images=scoring.images, measure=scoring.measure, floating=scoring.floating(), quantized=scoring.with_float(())
    )
    scored = []
    for layer in layers:
        if layer.name in names:
            layer = replace(layer, only=scoring.only(layer.name), without=scoring.with_float({layer.name}))
            on_progress("sensitivity", names.index(layer.name) + 1, len(names))
        scored.append(layer)
    if target_drop is None:
        return scored, summary, None
    tries = itertools.count(1)
    proposal = propose(scoring, scored, target_drop, ops, lambda: on_progress("proposal", next(tries), None))
    return scored, summary, proposal
