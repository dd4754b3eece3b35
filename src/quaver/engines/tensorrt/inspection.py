"""Looking inside a file for TensorRT, as ONNX Runtime executes it: quantized tensors as further outputs."""

from collections.abc import Collection
from pathlib import Path

from quaver.engines.inspection import Revealed
from quaver.onnx import revealing


def reveal(file: Path, names: list[str], threads: int, apart: Collection[str]) -> Revealed:
    """The model with these tensors as further outputs."""
    return revealing.reveal(file, names, threads, optimize=False)
