"""Ctrl-C and SIGTERM: training stops between two steps, everything else is left in good order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """While the ``with`` block runs, SIGTERM raises a `KeyboardInterrupt` with its number: blocks clean up."""

    def asked(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, asked)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interruption:
    """While the ``with`` block runs, the first Ctrl-C or SIGTERM only sets ``number``; a second one acts as usual."""

    WATCHED = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        self._before = {number: signal.signal(number, self._asked) for number in self.WATCHED}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
