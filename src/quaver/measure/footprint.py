"""What an artefact occupies: bytes on disk, and memory while it runs, measured in a process of its own."""

import contextlib
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from quaver.engines import installed, weights_beside
from quaver.errors import EngineError
from quaver.runtime.example_batches import random_batch
from quaver.runtime.trial import signal_words

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Memory:
    """Bytes of resident memory that loading an artefact, and then running it, added at most to a process.

    The process had imported the engine; what that loads on first use (plug-ins, kernels) is in the figure. Both are None
    where the system does not tell.
    """

    load: int | None
    run: int | None


def file_size(path: Path) -> int:
    """Bytes of the files that an engine reads: ``.xml`` with its ``.bin``, ``.onnx`` with weights stored beside it."""
    return sum(file.stat().st_size for file in (path, *weights_beside([path]).values()) if file.is_file())


def memory(path: Path, engine: str, threads: int = 1, batch: int = 1) -> Memory:
    """Measured in a fresh process, in which nothing else was loaded, run or freed before."""
    command = [sys.executable, "-m", __name__, str(path), engine, str(threads), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        reason = f"it died of {signal_words(-done.returncode)}" if done.returncode < 0 else reason
        raise EngineError(f"{path}: its memory on {engine} could not be measured: {reason}.")
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def _measured(path: Path, engine: str, threads: int, batch: int) -> Memory:
    load = installed(engine).load  # imports the engine, which is not the model's memory
    _forget_the_peak()
    before = _bytes("VmRSS")
    run = load(path, threads)
    loaded = _bytes("VmHWM")
    inputs = random_batch(run.inputs, batch)
    for _ in range(3):
        run(*inputs)
    ran = _bytes("VmHWM")
    if before is None or loaded is None or ran is None:
        return Memory(None, None)
    return Memory(max(loaded - before, 0), max(ran - before, 0))


def _forget_the_peak() -> None:
    """Start VmHWM anew: importing may have needed more than is resident now."""
    with contextlib.suppress(OSError):  # not every system lets us; then small models may seem to need nothing
        Path("/proc/self/clear_refs").write_text("5")


def _bytes(field: str) -> int | None:
    """A figure from Linux's status file: VmRSS is the resident memory now, VmHWM the most there ever was."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(sizes[0]) * 1024 if sizes else None


if __name__ == "__main__":
    file, engine, threads, batch = sys.argv[1:]
    print(json.dumps(asdict(_measured(Path(file), engine, int(threads), int(batch)))))
