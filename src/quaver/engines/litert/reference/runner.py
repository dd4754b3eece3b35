"""An artefact on LiteRT's reference kernels."""

from pathlib import Path
from typing import Any

from quaver.engines.litert import runner


def kernels() -> dict[str, Any]:
    """What LiteRT's interpreter is told."""
    return {"experimental_op_resolver_type": runner.engine().OpResolverType.BUILTIN_REF}


def load(path: Path, threads: int) -> runner.LiteRTRunner:
    """A runner for ``model.tflite``."""
    return runner.load(path, threads, **kernels())
