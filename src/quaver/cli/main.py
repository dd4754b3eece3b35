"""``quaver``: the commands, and how their errors are shown."""

import functools
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Any

import typer
from rich.console import Console

from quaver.cli.analyze import analyze
from quaver.cli.bench import bench
from quaver.cli.check import check
from quaver.cli.convert_data import convert_data
from quaver.cli.demo import demo
from quaver.cli.export import convert, export
from quaver.cli.flags import FlagsCommand
from quaver.cli.report import report
from quaver.cli.test import BOTH_SPELLINGS, run_tester
from quaver.cli.train import quantize, train
from quaver.cli.verify import verify
from quaver.errors import QuaverError, StoppedError


def with_plain_errors(command: Callable[..., None]) -> Callable[..., None]:
    """An error a user can cause is one message and exit code 2; a signal is a word and the code that shells expect."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        errors = Console(stderr=True, soft_wrap=True, highlight=False)
        try:
            command(*args, **kwargs)
        except StoppedError as stopped:
            errors.print(str(stopped), markup=False)
            raise typer.Exit(stopped.exit_code) from stopped
        except QuaverError as error:
            errors.print("[red]error:[/]", end=" ")
            errors.print(str(error), markup=False)
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            errors.print("stopped.")
            raise typer.Exit(130) from None

    return run


app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(with_plain_errors(demo))
app.command(cls=FlagsCommand, context_settings=BOTH_SPELLINGS)(with_plain_errors(train))
app.command(cls=FlagsCommand, context_settings=BOTH_SPELLINGS)(with_plain_errors(quantize))
app.command()(with_plain_errors(check))
app.command()(with_plain_errors(convert))
app.command()(with_plain_errors(export))
app.command(context_settings=BOTH_SPELLINGS)(with_plain_errors(verify))
app.command()(with_plain_errors(bench))
app.command(context_settings=BOTH_SPELLINGS)(with_plain_errors(analyze))
app.command()(with_plain_errors(report))
app.command()(with_plain_errors(convert_data))
app.command("test", context_settings=BOTH_SPELLINGS)(with_plain_errors(run_tester))


@app.callback()
def quaver() -> None:
    """Quantization-aware training for PyTorch vision models, from float to int8."""


def main() -> None:
    """Run a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # names of files may be in any encoding
    app()
