"""Which engine reads which file, and an artefact on an engine of one's choice."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from quaver.errors import EngineError
from quaver.runtime import Runner

READS = {"openvino": (".xml", ".onnx"), "onnxruntime": (".onnx",), "executorch": (".pte",)}
"""The files that each engine runs."""


def installed() -> list[str]:
    """The engines that can be imported here."""
    return [engine for engine in READS if find_spec(engine) is not None]


def loader(engine: str) -> Callable[[Path, int], Runner]:
    """What puts a file on an engine, with a number of threads; the engine itself is imported by this call."""
    if engine not in installed():
        raise EngineError(f"{engine} is not installed. Install it with pip install 'quaver[{engine}]'.")
    import_module(engine)
    if engine == "openvino":
        from quaver.runtime.openvino import load as openvino

        return openvino
    if engine == "onnxruntime":
        from quaver.runtime.onnxruntime import load as onnxruntime

        return onnxruntime
    from quaver.runtime.executorch import load as executorch

    return executorch
