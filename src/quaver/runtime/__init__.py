"""Artefacts on their engines: one small interface, numpy in and out."""

from pathlib import Path

from quaver.config.check import check, whole
from quaver.locks import folder_lock
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
        checked(path)
        return _opened(path, threads)


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
