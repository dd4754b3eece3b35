"""Artefacts on their engines: one small interface, numpy in and out."""

import warnings
from pathlib import Path
from typing import Any

from quaver.checking import check, whole
from quaver.engines import Engine, engine_of
from quaver.errors import QuaverWarning
from quaver.locks import folder_lock
from quaver.runtime.artefact import checked, find, image_input, output_names
from quaver.runtime.queue import Queue
from quaver.runtime.runner import Array, Input, Runner


def load(artefact: str | Path, threads: int = 1) -> Runner:
    """An artefact on the engine that it was written for: ``run(batch)`` gives the output as numpy.

    Of files from elsewhere, OpenVINO runs ``.xml``, ONNX Runtime ``.onnx``, ExecuTorch ``.pte``. Files that were changed
    since they were exported are refused. `Queue` runs several batches at once.
    """
    check("runtime.load", {"threads": threads}, {"threads": whole(1)})
    path = find(artefact)
    with folder_lock(path.parent, shared=True):  # nobody exports into it meanwhile
        origin = checked(path)
        engine = engine_of(path, origin)
        _warn_of_overflow(path, engine, origin)
        run = engine.load(path, threads)
    run.image, run.outputs = image_input(path, origin), output_names(path, origin)
    return run


def _warn_of_overflow(path: Path, engine: Engine, origin: dict[str, Any]) -> None:
    """Say so where a file with weights of full range meets a processor that overflows on them."""
    layers = origin.get("full_range")
    if layers and engine.saturates_here():
        warnings.warn(
            f"{path}: this processor has no VNNI and overflows on weights of full range, as {len(layers)} layers have them, "
            f"{layers[0]!r} first: results will differ from training's. Train with saturation_safe=True for it.",
            QuaverWarning,
            stacklevel=3,
        )


__all__ = ["Array", "Input", "Queue", "Runner", "load"]
