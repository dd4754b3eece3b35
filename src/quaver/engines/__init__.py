"""Engines: what each can do, how it computes, its file, running it, looking inside it. One folder each.

>>> ENGINES["onnx"].title
'ONNX Runtime'
"""

import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from quaver.engines.engine import Engine, WriteOptions
from quaver.errors import EngineError, QuaverWarning

FOLDERS = ["openvino", "onnxruntime", "executorch", "litert", "litert.reference", "tensorrt"]
"""The engines; to add one is to add its folder and its name here. The first is the default. Another package can bring one,
too, as an entry point of the group ``quaver.engines``."""

ENGINES: dict[str, Engine] = {}


def register(engine: Engine) -> Engine:
    """Make an engine known by its name."""
    ENGINES[engine.name] = engine
    return engine


def _register_all() -> None:
    for folder in FOLDERS:
        register(import_module(f"quaver.engines.{folder}").ENGINE)
    for announced in entry_points(group="quaver.engines"):
        try:
            register(announced.load())
        except Exception as error:  # of another's code
            warnings.warn(f"the engine {announced.name!r} cannot be imported: {error}.", QuaverWarning, stacklevel=2)


_register_all()
DEFAULT = next(iter(ENGINES.values()))
"""The engine that programs are made for unless another is named, and in whose arithmetic prepared ones evaluate."""


def packages() -> dict[str, Engine]:
    """The packages that run files, each with the engine that it is; another engine's files may run there, too."""
    engines: dict[str, Engine] = {}
    for engine in ENGINES.values():
        engines.setdefault(engine.package, engine)
    return engines


def by_package(package: str) -> Engine:
    """The engine that a package is: ``onnxruntime`` is called ``onnx`` in configs."""
    return packages()[package]


def mobile_engine() -> Engine:
    """The engine of phones."""
    return next(engine for engine in ENGINES.values() if engine.folder == "mobile")


def suffixes() -> tuple[str, ...]:
    """The suffixes of the files that engines read."""
    return tuple(dict.fromkeys(engine.suffix for engine in ENGINES.values()))


def weights_beside(files: Iterable[Path]) -> dict[Path, Path]:
    """Of those of the files that an engine keeps the weights of in another, that file."""
    readers = [(file, engine) for file in files for engine in ENGINES.values() if engine.suffix == file.suffix]
    beside = {file: engine.weights_beside(file) for file, engine in readers}
    return {file: weights for file, weights in beside.items() if weights is not None}


def engine_of(file: Path, origin: dict[str, Any]) -> Engine:
    """The engine that a file was written for: its origin says which; of a file from elsewhere, its suffix does."""
    written_for = ENGINES.get(origin.get("target", ""))
    if written_for is not None and written_for.suffix == file.suffix:
        return written_for
    return next(engine for engine in ENGINES.values() if engine.suffix == file.suffix)


def installed(package: str) -> Engine:
    """The engine that a package is, imported; an `EngineError` where it is not installed."""
    engine = by_package(package)
    if not engine.is_installed:
        raise EngineError(f"{package} is not installed. Install it with pip install {engine.requirement}.")
    import_module(package)
    return engine


__all__ = [
    "DEFAULT",
    "ENGINES",
    "Engine",
    "WriteOptions",
    "by_package",
    "engine_of",
    "installed",
    "mobile_engine",
    "packages",
    "register",
    "suffixes",
    "weights_beside",
]
