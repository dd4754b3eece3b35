"""``quaver test``: a deployed model over a binary data file, every image counted once."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.cli.notices import name_others
from quaver.cli.report_files import refuse_unwritable, write_report
from quaver.data.binary import BinaryData, load_binary
from quaver.errors import ConfigError, DataError
from quaver.measure.accuracy import top_k_hits
from quaver.runtime import Array, Runner, load
from quaver.runtime.artefact import find
from quaver.runtime.saved_program import ProgramRunner, is_program_alone
from quaver.runtime.trial import tried


@dataclass(frozen=True)
class Counted:
    """What one batch gave; hits are 0 where labels are not looked at."""

    images: int
    seconds: float
    hits1: int = 0
    hits5: int = 0
    not_a_number: int = 0


def run_tests(
    infer_model: Path,
    infer_data: Path,
    *,
    batch_size: int,
    skip_batch_num: int,
    batch_num: int,
    with_labels: bool,
    threads: int,
    output: int,
    json: Path | None,
) -> None:
    """The model over the file: a line per batch, the totals, and a record of them."""
    refuse_unwritable(json, make_folder=False)
    data = load_binary(infer_data, check_labels=with_labels)
    batches = -(-len(data) // batch_size)
    batches = min(batches, batch_num) if batch_num > 0 else batches
    if skip_batch_num >= batches:
        raise ConfigError(
            f"--skip_batch_num {skip_batch_num}: {_count(batches, 'batch', 'batches')} of {data.path} will be run, so none "
            f"is left to be timed. Skip fewer, or make them smaller: there are {_count(len(data), 'image', 'images')}."
        )
    run = _runner(infer_model, threads)
    _refuse_other_images(infer_model, run, data)
    images = min(len(data), batches * batch_size)
    _refuse_other_batches(infer_model, run, batch_size, images)
    print(f"model: {infer_model} ({run.engine}, {_count(threads, 'thread', 'threads')})")
    print(f"data: {infer_data}, {len(data)} images of {_shape(data.image_shape)}, batch size {batch_size}")
    _compile(run, data, batch_size, images)
    counted: list[Counted] = []
    for index, (prepared, labels) in enumerate(islice(data.batches(batch_size), batches)):
        batch: Array = prepared if run.image is None else run.image.images_of(prepared)
        start = time.perf_counter()
        result = run(batch)
        seconds = time.perf_counter() - start
        hits = _hits(_logits(infer_model, result, output, data, len(batch)), labels) if with_labels else {}
        counted.append(Counted(len(batch), seconds, **hits))
        note = " (warm-up)" if index < skip_batch_num else ""
        print(f"batch {index + 1}{note}, {_line(_figures(counted[-1:], counted[-1:], with_labels))}", flush=True)
    figures = _figures(counted, counted[skip_batch_num:], with_labels)
    _show(figures)
    if json is not None:
        settings = {
            "model": str(infer_model),
            "data": str(infer_data),
            "engine": run.engine,
            "threads": threads,
            "batch_size": batch_size,
            "batches": batches,
            "skip_batch_num": skip_batch_num,
        }
        write_report(json, settings | figures)


def _runner(model: Path, threads: int) -> Runner:
    """The model on its engine, or, where there is a saved program and no file for an engine, on PyTorch."""
    if is_program_alone(model):
        return ProgramRunner(model, threads)
    tried(find(model))
    name_others(model)
    return load(model, threads=threads)


def _refuse_other_images(model: Path, run: Runner, data: BinaryData) -> None:
    """The model must take one batch of images, and of the size that the file has."""
    if len(run.inputs) != 1:
        names = ", ".join(repr(taken.name) for taken in run.inputs)
        raise DataError(f"{model}: the model takes {len(run.inputs)} inputs ({names}). A data file has images only.")
    (taken,) = run.inputs
    fits = len(taken.shape) == 4 and all(
        wanted in (None, given) for wanted, given in zip(taken.shape[1:], _image_shape(run, data), strict=True)
    )
    if not fits or (taken.dtype.kind != "f" and run.image is None):
        raise DataError(
            f"{model}: its input {taken.name!r} takes {taken.dtype} of shape {_shape(taken.shape)}, but {data.path} has "
            f"float32 of shape {_shape((None, *data.image_shape))}. quaver convert-data --size makes a file of another size."
        )


def _image_shape(run: Runner, data: BinaryData) -> tuple[int, ...]:
    """The sizes of an image of the data file, in the order in which the model takes them."""
    return data.image_shape if run.image is None else run.image.shape((None, *data.image_shape))[1:]


def _refuse_other_batches(model: Path, run: Runner, batch_size: int, images: int) -> None:
    """A model that was exported for batches of one size takes no others, a short last one included."""
    size = run.inputs[0].shape[0]
    if size is None:
        return
    if batch_size != size:
        raise ConfigError(f"{model}: the model takes batches of {size}, not of {batch_size}. Use --batch_size {size}.")
    if images % size:
        leave_out = f", or leave them out with --batch_num {images // size}" if images > size else ""
        raise ConfigError(
            f"{model}: the model takes batches of {size}, and of {images} images {images % size} are left over. Export it "
            f"for batches of any size{leave_out}."
        )


def _compile(run: Runner, data: BinaryData, batch_size: int, images: int) -> None:
    """Run a batch of each size, the short last one too: engines compile for a size when they first meet it."""
    for size in (min(batch_size, images), images % batch_size):
        if size:
            run(np.zeros((size, *_image_shape(run, data)), run.inputs[0].dtype))


def _logits(model: Path, result: Array | tuple[Array, ...], output: int, data: BinaryData, images: int) -> Array:
    """The output that was asked for, as images x classes, with a logit for every label of the file."""
    outputs = result if isinstance(result, tuple) else (result,)
    if output >= len(outputs):
        raise ConfigError(f"--output {output}: {model} has {_count(len(outputs), 'output', 'outputs')}, counted from 0.")
    logits = outputs[output]
    if logits.ndim < 2 or len(logits) != images or logits.size != images * logits.shape[1]:
        raise DataError(
            f"{model}: output {output} has shape {_shape(logits.shape)} for {images} images; logits are images x classes. "
            "Choose another with --output, or only measure speed with --speed_only."
        )
    classes = logits.shape[1]
    if (highest := data.highest_label) >= classes:
        raise DataError(
            f"{data.path}: there are labels up to {highest}, but output {output} of {model} has {classes} classes. The two "
            "do not belong together, or --output should name another output."
        )
    return logits.reshape(images, classes)


def _hits(logits: Array, labels: NDArray[np.int64]) -> dict[str, int]:
    return {
        "hits1": int(top_k_hits(logits, labels, 1).sum()),
        "hits5": int(top_k_hits(logits, labels, 5).sum()),
        "not_a_number": int(np.isnan(logits).any(axis=1).sum()),
    }


def _figures(counted: list[Counted], timed: list[Counted], with_labels: bool) -> dict[str, Any]:
    """Accuracy over everything that was counted, latency and fps over what was timed."""
    images = sum(batch.images for batch in counted)
    seconds = max(sum(batch.seconds for batch in timed), 1e-9)  # a clock may stand still for an empty model
    timed_images = sum(batch.images for batch in timed)
    figures: dict[str, Any] = {"images": images}
    if with_labels:
        for name in ("hits1", "hits5", "not_a_number"):
            figures[name] = sum(getattr(batch, name) for batch in counted)
        figures |= {"acc1": figures["hits1"] / images, "acc5": figures["hits5"] / images}
    return figures | {
        "timed_images": timed_images,
        "seconds": seconds,
        "latency_ms": 1000 * seconds / timed_images,
        "fps": timed_images / seconds,
    }


def _line(figures: dict[str, Any]) -> str:
    accuracy = f"acc1: {figures['acc1']:.4f}, acc5: {figures['acc5']:.4f}, " if "acc1" in figures else ""
    return f"{accuracy}latency: {figures['latency_ms']:.4f} ms/sample, fps: {figures['fps']:.2f}"


def _show(figures: dict[str, Any]) -> None:
    print(f"total, {_line(figures)}")
    hits = f"{figures['hits1']} top-1 hits and {figures['hits5']} top-5 hits in " if "acc1" in figures else ""
    print(f"{hits}{_count(figures['images'], 'image', 'images')}, {figures['timed_images']} timed")
    if wrong := figures.get("not_a_number"):
        print(f"{_count(wrong, 'image', 'images')} gave logits that are not numbers; a label with such a logit is no hit")


def _shape(sizes: Iterable[int | None]) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes)


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"
