"""What the library warns of, as a command says it: a line, wherever other libraries send what they log."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape

from quaver.cli.consoles import progress_console
from quaver.errors import QuaverWarning


def warn(message: str) -> None:
    """A line that stands out."""
    progress_console().print(f"[yellow]warning:[/] {escape(message)}")


def name_others(model: Path) -> None:
    """Say which file of a folder is taken, where it has one for several engines."""
    from quaver.runtime.artefact import find_all

    file, *others = find_all(model)
    for other in others:
        progress_console().print(f"{file} is taken. {other.name} is there, too: name it to take it.", markup=False)


class _Lines(logging.Handler):
    """Says each message once, however many programs it holds for."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: set[str] = set()

    def say(self, message: str) -> None:
        if message not in self.said:
            self.said.add(message)
            warn(message)

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.getMessage())


@contextmanager
def as_lines() -> Iterator[None]:
    """While a command runs, warnings of ours are lines of it, without the place in the source."""
    logger, lines, show = logging.getLogger("quaver"), _Lines(), warnings.showwarning

    def shown(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, QuaverWarning):
            lines.say(str(message))
        else:
            show(message, category, *place, **more)

    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(lines)
    warnings.showwarning = shown
    try:
        yield
    finally:
        warnings.showwarning = show
        logger.removeHandler(lines)
        logger.propagate = propagated
