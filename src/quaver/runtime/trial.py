"""The first run of a file, in a process of its own: an engine that dies takes nothing with it.

One process serves all files, and ends with this one: starting it takes half a second, a file what loading and one run take.
"""

import atexit
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from signal import SIGALRM, Signals, strsignal
from tempfile import TemporaryFile
from threading import Lock
from typing import IO

from quaver.engines import Engine, engine_of
from quaver.errors import EngineError
from quaver.machine.cpu import cpu
from quaver.machine.packages import version_of
from quaver.runtime import trial_child
from quaver.runtime.artefact import provenance


def tried(path: Path, engine: Engine | None = None, *, place: str = "") -> None:
    """Load and run a file once, elsewhere; `EngineError` if the engine died of it.

    ``engine`` is the one that the file was written for, unless another is named. ``place`` opens the message instead of a
    path that means nothing to the user. What an engine refuses is not told here.
    """
    engine = engine or engine_of(path, provenance(path))
    if not engine.is_installed:
        return
    death = _CHILD.died_of(json.dumps({"engine": type(engine).__module__, "file": str(path.absolute())}))
    if death is not None:
        raise EngineError(
            f"{place or path}: {engine.package} {version_of(engine.package)} died of {death} when it ran the model for the "
            "first time. It did so in a process of its own: nothing is lost. "
            f"The processor is {cpu().words()}. {engine.remedy}"
        )


def signal_words(number: int) -> str:
    """A signal by its name, and what it means.

    >>> signal_words(4)
    'SIGILL (illegal instruction)'
    """
    return f"{Signals(number).name} ({(strsignal(number) or 'no more is known').lower()})"


class _Child:
    """The process, started when it is needed.

    Its files have no buffers: those have locks, and a fork made while another thread holds one would wait for it for ever.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr: IO[bytes] | None = None

    def died_of(self, request: str) -> str | None:
        """The signal that ended it over a request, and its last words; None if it is still there."""
        with self.lock:
            while True:
                code = self._answer_to(request)
                if code != -SIGALRM:  # which it sent itself, a moment before, for having had nothing to do
                    return self._last_words(-code) if code < 0 else None

    def end(self) -> None:
        """Let it go: it ends when nobody can ask any more."""
        process, self.process = self.process, None
        if process is not None:
            with process:  # closes its pipes, and waits
                pass
        if self.stderr is not None:
            self.stderr.close()

    def forget(self) -> None:
        """Be as new in a fork of this process: the child is not its child."""
        if self.process is not None:
            self.process.returncode = 0  # there is nothing to wait for
            self.end()
        self.lock = Lock()

    def _answer_to(self, request: str) -> int:
        """0 for an answer, or else the process's exit code."""
        if self.process is None or self.process.poll() is not None:
            self.end()
            try:
                self._start()
            except OSError:  # no process can be started here: the file will have to do without
                return 0
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{request}\n".encode())
        return 0 if self.process.stdout.readline() else self.process.wait()

    def _start(self) -> None:
        self.stderr = TemporaryFile(buffering=0)  # noqa: SIM115, closed at the end
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable or "", "-P", trial_child.__file__],  # -P: the modules beside the script are called like engines
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": paths},
            start_new_session=True,  # a Ctrl-C is not for it
        )

    def _last_words(self, number: int) -> str:
        assert self.stderr is not None
        self.stderr.seek(0)
        lines = [line for line in map(str.strip, self.stderr.read().decode(errors="replace").splitlines()) if line]
        reason = f", saying {lines[-1][:200]!r}," if lines else ""
        return f"{signal_words(number)}{reason}"


_CHILD = _Child()
atexit.register(_CHILD.end)
os.register_at_fork(after_in_child=_CHILD.forget)
