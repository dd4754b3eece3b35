"""An artefact on ExecuTorch, with XNNPACK.

A ``.pte`` file of ours ends with a seal, a checksum of all before it, which ExecuTorch does not read: given a file with one
bit changed, ExecuTorch 1.4 crashes now and then, and now and then it gives a wrong answer.
"""

import json
import os
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import torch

from quaver.errors import EngineError, StorageError
from quaver.log_suppression import suppressed_logs
from quaver.runtime.runner import Array, Input, Runner
from quaver.runtime.seal import unsealed
from quaver.runtime.split_batches import in_pieces

FACTS = "quaver"  # the method of a file that gives what Quaver wrote about it, as JSON


class ExecuTorchRunner(Runner):
    """A loaded method. The file takes one image at a time where the batch is free: a batch is run piece by piece.

    Any number of threads may call it: whatever touches ExecuTorch holds `_POOL`'s lock.
    """

    engine = "executorch"
    in_turns = True

    def __init__(self, content: bytes, threads: int = 1) -> None:
        self.content = content
        self.threads = threads
        self.load()
        (facts,) = self.program.load_method(FACTS).execute([])
        self.inputs = [Input(name, tuple(shape), np.dtype(dtype)) for name, shape, dtype in json.loads(facts)["inputs"]]

    def load(self) -> None:
        """Have XNNPACK pack the weights and take hold of the threads as they are now."""
        self.pool = _POOL.of_size(self.threads)
        self.program = engine().load_program(self.content)
        self.method = self.program.load_method("forward")

    def infer(self, batch: list[Array]) -> list[Array]:
        """One call per image."""
        with _POOL.lock:
            if self.pool is not _POOL.current:
                with redirect_stderr(StringIO()):
                    self.load()
            return in_pieces(self.run, self.inputs, batch)

    def run(self, arrays: list[Array]) -> list[Array]:
        """One call of the method, with copies: it wants memory that it may write to."""
        try:
            outputs = self.method.execute([torch.tensor(array) for array in arrays])
        except RuntimeError as error:
            raise EngineError(f"ExecuTorch failed while it ran the model: {error}.") from error
        return [output.numpy().copy() for output in outputs]


class _Pool:
    """ExecuTorch's one pool of threads. A method keeps the pool it was loaded with, and crashes when that is replaced.

    So no pool is replaced while a method runs. That they run in turns costs nothing: ExecuTorch keeps Python's own lock.
    """

    def __init__(self) -> None:
        self.current = object()
        self.renew()

    def renew(self) -> None:
        """A lock that nobody holds: after a fork, who held it is not there any more."""
        self.lock = RLock()

    def of_size(self, threads: int) -> object:
        """Something that stands for the pool, which has this many threads from now on."""
        library = _library()
        if library._threadpool_get_thread_count() != threads:
            library._unsafe_reset_threadpool(threads)
            self.current = object()
        return self.current


_POOL = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.renew)


def engine() -> Any:
    """ExecuTorch's runtime."""
    _library()
    from executorch.runtime import Runtime

    return Runtime.get()


def _library() -> Any:
    try:
        with suppressed_logs():
            from executorch.extension.pybindings import portable_lib
    except ImportError as error:
        raise EngineError(
            "executorch is not installed: it runs .pte files. Install it with pip install 'quaver[executorch]'."
        ) from error
    return portable_lib


def load(path: Path, threads: int) -> ExecuTorchRunner:
    """A runner for ``model.pte``."""
    content = unsealed(path)
    with _POOL.lock, redirect_stderr(StringIO()) as log:  # ExecuTorch says there, and only there, what is wrong
        try:
            return ExecuTorchRunner(content, threads)
        except (RuntimeError, ValueError, LookupError, TypeError) as error:
            # less its account of the processor and the threads
            complaints = [line for line in log.getvalue().splitlines() if not line.startswith(("[cpuinfo", "[threadpool"))]
            reason = next(iter(complaints), str(error))
            raise StorageError(f"{path}: ExecuTorch cannot run it: {reason}. Export the program again.") from error
