"""Where a command writes: results on standard output, and on standard error how far it is."""

import os
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from rich.progress import Progress

WIDE = 10_000
"""Columns of a place that is no screen: no table is as wide."""


def results_console() -> Console:
    """Standard output, for what a user asked for."""
    return _console()


def progress_console(*, quiet: bool = False) -> Console:
    """Standard error, for what is said on the way: a pipe has the results alone."""
    return _console(stderr=True, quiet=quiet)


def progress_bar(console: Console | None = None) -> "Progress":
    """A bar with the time left, gone when it is full; nothing where standard error is no screen."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = console or progress_console()
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=console.quiet or not console.is_terminal)


def table_of(title: str, *columns: str) -> Table:
    """A table; columns of numbers begin with ``|``. What is too long for a screen goes on in the next line."""
    table = Table(title=escape(title))
    for column in columns:
        table.add_column(column.removeprefix("|"), justify="right" if column.startswith("|") else "left", overflow="fold")
    return table


def _console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A file or a pipe has room for every column, and for every line in one piece."""
    console = Console(stderr=stderr, quiet=quiet, highlight=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console
