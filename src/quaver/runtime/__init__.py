"""Artefacts on their engines: one small interface, numpy in and out."""

import warnings
from pathlib import Path
from typing import Any

from quaver.config.check import check, whole
from quaver.errors import QuaverWarning
from quaver.locks import folder_lock
from quaver.machine.cpu import cpu
from quaver.runtime.artefact import checked, find
from quaver.runtime.runner import Array, Input, Runner


def load(artefact: str | Path, threads: int = 1) -> Runner:
    """An artefact on the engine that reads it: ``run(batch)`` gives the output as numpy.

    OpenVINO runs ``.xml``, ONNX Runtime ``.onnx``, ExecuTorch ``.pte``. Files that were changed since they were exported
    are refused.
    """
    check("runtime.load", {"threads": threads}, {"threads": whole(1)})
    path = find(artefact)
    with folder_lock(path.parent, shared=True):  # nobody exports into it meanwhile
        _warn_of_overflow(path, checked(path))
        return _opened(path, threads)


def _warn_of_overflow(path: Path, origin: dict[str, Any]) -> None:
    """Say so where a file with weights of full range meets a processor that overflows on them."""
    layers = origin.get("full_range")
    if layers and cpu().saturates(onednn=path.suffix == ".xml"):
        warnings.warn(
            f"{path}: this processor has no VNNI and overflows on weights of full range, as {len(layers)} layers have them, "
            f"{layers[0]!r} first: results will differ from training's. Train with saturation_safe=True for it.",
            QuaverWarning,
            stacklevel=3,
        )


def _opened(path: Path, threads: int) -> Runner:
    if path.suffix == ".xml":
        from quaver.runtime import openvino

        return openvino.load(path, threads)
    if path.suffix == ".onnx":
        from quaver.runtime import onnxruntime

        return onnxruntime.load(path, threads)
    from quaver.runtime.executorch import load as load_executorch

    return load_executorch(path, threads)


__all__ = ["Array", "Input", "Runner", "load"]
