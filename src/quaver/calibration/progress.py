"""How far a calibration is, on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Tell = Callable[[str, int, int], None]


@contextmanager
def shown(on_progress: Tell | None) -> Iterator[Tell]:
    """Whom to tell: ``on_progress``, or a bar on the terminal; nobody where there is neither."""
    if on_progress is not None:
        yield on_progress
        return
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield tell
