"""``quaver.calibrate``: a prepared program with good ranges and corrected weights, from some images and no training."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from quaver.analysis.arguments import image_error_context, on_its_device, prepared, split
from quaver.calibration.activation_ranges import ObservedTensor, give, largest_of, look, nearest_readers, nearest_tensor
from quaver.calibration.asymmetry import skewed
from quaver.calibration.batch_norm_correction import reestimate
from quaver.calibration.bias_correction import can_correct, correct_bias
from quaver.calibration.calibrated_layer import CalibratedLayer, layers_of
from quaver.calibration.calibration_options import CalibrationOptions
from quaver.calibration.equalization import equalize
from quaver.calibration.products import products_of
from quaver.calibration.progress import shown
from quaver.calibration.rounding import round_by_output
from quaver.calibration.sweep import Sweep
from quaver.calibration.weight_ranges import begin, search_thresholds
from quaver.config import QuantConfig
from quaver.engines import ENGINES
from quaver.errors import ConfigError, InputError, StageError
from quaver.graph.nodes import calls, is_fake_quant, quantizer_of
from quaver.program import EVAL, Program, Stage

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""

TOGETHER = 32
"""Images per batch."""

MEMORY = 2 << 30
"""Bytes for the tensors of all images that the sweep keeps at a time; where they do not fit, it sees fewer images."""

LIVE_TENSORS = 4
"""Tensors that are kept at a time, about, in each of the two networks."""


@torch.no_grad()
def calibrate(
    model_or_program: nn.Module,
    batches: Iterable[Any],
    config: QuantConfig | Mapping[str, Any] | None = None,
    *,
    target: str | None = None,
    on_progress: Progress | None = None,
    **options: Any,
) -> Program:
    """A prepared program, ready for `quaver.convert`: quantizers placed, ranges found, weights corrected, without training.

    ``batches``: images, or pairs of images and labels, which are not looked at; normalized as the model wants them, and not
    sorted by class. The first 256 images do. What was given is not changed: the program has tensors of its own, and is in
    evaluation mode. Training can go on from it: call ``.train()``.

    ``config`` is that of `quaver.quant_aware`, ``target`` its key of that name. ``options`` are those of
    `CalibrationOptions`. On a terminal a bar shows how far it is, or ``on_progress`` is told.
    """
    chosen = CalibrationOptions(**options)
    images = _first_images(batches, chosen.images)
    if not isinstance(model_or_program, nn.Module):
        raise InputError(f"calibrate: takes a model or a program, not {type(model_or_program).__name__}.")
    placed, _ = prepared(model_or_program, _config(config, target), ((images[:2],), {}), "calibrate")
    if placed.stage is not Stage.PREPARED:
        raise StageError(
            f"calibrate: the program is {placed.stage.value}, so its ranges are fixed. Give the float or the prepared one."
        )
    _refuse_other_dtypes(placed)
    asymmetric = _asymmetric(placed, chosen)
    images = on_its_device(placed, images)
    program = copy.deepcopy(placed.clone() if placed.for_test else placed)
    nn.Module.train(program, False)  # without a word on ranges that are yet to be found
    given = [program.signature.flatten((part,), {}) for part in torch.split(images, TOGETHER)]
    with shown(on_progress) as tell:
        _Calibration(program, given, replace(chosen, asymmetric=asymmetric), tell).run()
    return program


def _first_images(batches: Iterable[Any], count: int) -> Tensor:
    """So many images, those that come first."""
    image_batches: list[Tensor] = []
    for batch in batches:
        images, _ = split(batch, "calibrate")
        if image_batches and (images.shape[1:] != image_batches[0].shape[1:] or images.dtype != image_batches[0].dtype):
            raise InputError(
                f"calibrate: batch {len(image_batches)} has images of shape {list(images.shape[1:])}, those before it had "
                f"{list(image_batches[0].shape[1:])}. Give images of one shape and dtype."
            )
        if images.is_floating_point() and not bool(torch.isfinite(images).all()):
            raise InputError(
                f"calibrate: batch {len(image_batches)} has NaN or Inf in it, which no range holds. Leave it out."
            )
        image_batches.append(images)
        if sum(map(len, image_batches)) >= count:
            break
    if not sum(map(len, image_batches)):
        raise InputError("calibrate: no images were given, so there is nothing to find ranges from.")
    return torch.cat(image_batches)[:count]


def _config(config: Any, target: str | None) -> Any:
    """The config with the target in it, if one is given."""
    if target is None:
        return config
    if config is None or isinstance(config, Mapping):
        given = dict(config or {})
        if given.setdefault("target", target) == target:
            return given
    elif isinstance(config, QuantConfig) and config.target == target:
        return config
    raise ConfigError(f"calibrate: target={target!r}, and the config says another. Give one of the two.")


def _refuse_other_dtypes(program: Program) -> None:
    strange = {p.dtype for p in program.parameters() if p.is_floating_point()} - {torch.float32}
    if strange:
        raise InputError(
            f"calibrate: the model has parameters in {strange.pop()}, and errors are measured in torch.float32. Give "
            "model.float(), and such images."
        )


def _asymmetric(program: Program, options: CalibrationOptions) -> bool:
    """Whether tensors may have zero points of their own: where the engine takes them, unless something else was said."""
    engine = ENGINES[program.placements.target]
    if options.asymmetric and not engine.asymmetric:
        able = ", ".join(name for name, other in ENGINES.items() if other.asymmetric)
        raise ConfigError(f"calibrate: asymmetric: {engine.title} is not known to take it exactly. Targets that do: {able}.")
    return engine.asymmetric if options.asymmetric is None else options.asymmetric


class _Calibration:
    """A program that is being calibrated: what was seen of its tensors, and the sweep that changes its layers in order."""

    def __init__(self, program: Program, batches: list[list[Tensor]], options: CalibrationOptions, tell: Progress) -> None:
        self.program, self.batches, self.options, self.tell = program, batches, options, tell

    def run(self) -> None:
        """Equalize, look, and go through the layers."""
        begin(self.program)
        with image_error_context("calibrate", self.batches[0][0]):
            if self.options.equalize:
                equalize(self.program, self.batches)
            self.seen, largest = look(self.program, self.batches, lambda done: self.tell("ranges", done, len(self.batches)))
        self.thresholds = {title: self._threshold(title, tensors) for title, tensors in self.seen.items()}
        for title, threshold in self.thresholds.items():
            give(self.program, self.seen[title], threshold)
        self._refuse_unseen()
        some = max(1, MEMORY // (2 * LIVE_TENSORS * 4 * largest * TOGETHER))
        self.sweep = Sweep(self.program, copy.deepcopy(self.program), self.batches[:some])
        self.layers = {layer.node: layer for layer in layers_of(self.program)}
        total = len(self.program.graphs[EVAL].nodes)
        for done, _ in enumerate(self.sweep.run(self.visit)):
            self.tell("layers", done + 1, total)

    def _threshold(self, title: str, tensors: list[ObservedTensor]) -> float:
        threshold = largest_of(tensors) if self.options.ranges == "largest" else nearest_tensor(tensors)
        return skewed(self.program, title, tensors, threshold) if self.options.asymmetric else threshold

    def _refuse_unseen(self) -> None:
        unseen = self.program.unseen()
        if unseen:
            raise InputError(
                f"calibrate: {unseen[0]!r} has no range: it is NaN or Inf on these images, or has a quantizer of your own, "
                "which only training batches can start."
            )

    def visit(self, node: fx.Node) -> None:
        """Choose what is to be chosen at a node, before the quantized network computes it."""
        if is_fake_quant(node):
            self.search_range(node)
        elif node in self.layers:
            self.adapt(self.layers[node])
        elif self.options.reestimate_bn and calls(node, "batch_norm"):
            reestimate(self.sweep, node)

    def search_range(self, node: fx.Node) -> None:
        """Look for a better range by what reads the tensor; tensors that share a quantizer stay with their own error."""
        title = quantizer_of(node)
        tensors = self.seen.get(title, [])
        if self.options.ranges != "output" or len(tensors) != 1 or node.args[1] != 0 or not self.thresholds[title]:
            return
        give(self.program, tensors, nearest_readers(self.sweep, node, tensors[0], self.thresholds[title]))

    def adapt(self, layer: CalibratedLayer) -> None:
        """Choose thresholds and integers of a layer's weight, then its bias."""
        bits, by_norm = layer.quantizer.grid.bits, self.options.reestimate_bn and layer.norm is not None
        corrects = self.options.correct_bias and not by_norm and can_correct(self.sweep, layer)
        searches, rounds = self.options.search_weights, self.options.rounds_weights(bits)
        products = products_of(self.sweep, layer, centred=corrects or by_norm) if searches or rounds else None
        if products is not None and searches:
            search_thresholds(layer, products)
        if products is not None and rounds:
            round_by_output(layer, products)
        if corrects:
            correct_bias(self.sweep, layer)
