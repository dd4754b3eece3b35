"""An artefact on LiteRT, with its XNNPACK delegate.

A ``.tflite`` file of ours ends with a seal, a checksum of all before it, which LiteRT does not read.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from quaver.engines.litert.flatbuffer import unpacked
from quaver.errors import EngineError, StorageError
from quaver.runtime.runner import Array, Input, Runner
from quaver.runtime.seal import unsealed
from quaver.runtime.split_batches import in_pieces

FACTS = b"quaver"


def engine() -> Any:
    """LiteRT's interpreter."""
    try:
        from ai_edge_litert import interpreter
    except ImportError as error:
        raise EngineError(
            "ai-edge-litert is not installed: it runs .tflite files. Install it with pip install 'quaver[litert]'."
        ) from error
    return interpreter


class LiteRTRunner(Runner):
    """An interpreter. The file takes one image at a time where the batch is free: a batch is run piece by piece.

    Any number of threads may call it, one after the other: an interpreter has one set of tensors.
    """

    engine = "ai_edge_litert"
    in_turns = True
    axes: Sequence[int | None] = ()  # of results behind the model's own

    def __init__(self, content: bytes, threads: int = 1, **options: Any) -> None:
        self.lock = Lock()
        with without_notes():
            self.interpreter = engine().Interpreter(model_content=content, num_threads=threads, **options)
            self.interpreter.allocate_tensors()
        facts = facts_in(content)
        self.inputs = [Input(name, tuple(shape), np.dtype(dtype)) for name, shape, dtype in facts["inputs"]]
        self.orders = facts["orders"]
        self.places = [port["index"] for port in self.interpreter.get_input_details()]
        self.results = [port["index"] for port in self.interpreter.get_output_details()]

    def infer(self, batch: list[Array]) -> list[Array]:
        """One call per image."""
        with self.lock:
            return in_pieces(self.run, self.inputs, batch, self.axes)

    def run(self, arrays: list[Array]) -> list[Array]:
        """One call of the interpreter."""
        try:
            for place, array, order in zip(self.places, arrays, self.orders, strict=True):
                self.interpreter.set_tensor(place, np.ascontiguousarray(array.transpose(order)))
            self.interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"LiteRT failed while it ran the model: {error}.") from error
        return [self.interpreter.get_tensor(place) for place in self.results]


class _Screen:
    """The process's own error stream, on which LiteRT tells that it made its delegate. One at a time may turn it away."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """A lock that nobody holds: after a fork, who held it is not there any more."""
        self.lock = Lock()


_SCREEN = _Screen()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SCREEN.renew)


@contextmanager
def without_notes() -> Iterator[None]:
    """Keep off the screen what LiteRT tells."""
    with _SCREEN.lock:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)


def facts_in(content: bytes) -> dict[str, Any]:
    """What Quaver wrote into a file about it."""
    model = unpacked(content)
    for entry in model.metadata or []:
        if entry.name == FACTS:
            facts: dict[str, Any] = json.loads(bytes(model.buffers[entry.buffer].data))
            return facts
    raise ValueError("Quaver did not write it")


def load(path: Path, threads: int, **options: Any) -> LiteRTRunner:
    """A runner for ``model.tflite``; ``options`` are the interpreter's."""
    content = unsealed(path)
    engine()
    try:
        return LiteRTRunner(content, threads, **options)
    except (RuntimeError, ValueError, LookupError, TypeError) as error:
        raise StorageError(f"{path}: LiteRT cannot run it: {error}. Export the program again.") from error
