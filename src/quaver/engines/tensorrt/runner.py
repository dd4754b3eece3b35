"""An artefact for TensorRT on ONNX Runtime: every pair and every op executed as it is written."""

from pathlib import Path

from quaver.onnx import session


def load(path: Path, threads: int) -> session.ONNXRuntimeRunner:
    """A runner for ``model.onnx``, without any rewriting of it."""
    return session.load(path, threads, optimize=False)
