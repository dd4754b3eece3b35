"""Looking inside LiteRT's reference kernels: quantized tensors as further outputs."""

from collections.abc import Collection
from pathlib import Path

from quaver.engines.inspection import Revealed
from quaver.engines.litert import inspection
from quaver.engines.litert.reference.runner import kernels


def reveal(file: Path, names: list[str], threads: int, apart: Collection[str]) -> Revealed:
    """The model with these tensors as further outputs."""
    return inspection.reveal(file, names, threads, apart, **kernels())
