"""The process in which files run for the first time: `quaver.runtime.trial` starts it as a script, and survives it.

A line of JSON names a file and its engine, and is answered by a line once the file ran or was refused: the caller will hear
of refusals when it runs the file itself. All that counts here is to be alive.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

SIDE = 224  # height and width for files that take any
IDLE = 60  # seconds without work after which the process ends itself; it is soon started again


def main() -> None:
    """Run what is asked for until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print is no answer
    signal.alarm(IDLE)
    for line in sys.stdin:
        signal.alarm(0)
        with suppress(Exception):
            _run(**json.loads(line))
        print("alive", file=answers, flush=True)
        signal.alarm(IDLE)


def _run(engine: str, file: str) -> None:
    import numpy as np

    run = import_module(engine).ENGINE.load(Path(file), threads=1)
    shapes = [[size or (SIDE if axis else 2) for axis, size in enumerate(port.shape)] for port in run.inputs]
    run(*(np.zeros(shape, port.dtype) for shape, port in zip(shapes, run.inputs, strict=True)))


if __name__ == "__main__":
    main()
