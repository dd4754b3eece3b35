"""``quaver``: the commands, and how their errors are shown."""

import functools
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from quaver import __version__
from quaver.cli.analyze import analyze
from quaver.cli.calibrate import calibrate
from quaver.cli.check import check
from quaver.cli.consoles import progress_console
from quaver.cli.export import convert, export
from quaver.cli.flags import BOTH_SPELLINGS, FlagsCommand, by_any_name
from quaver.cli.language import Lang, TranslatedCommand, TranslatedGroup
from quaver.cli.notices import as_lines
from quaver.cli.report import report
from quaver.cli.testing import bench, convert_data, run_tester
from quaver.cli.training_commands import demo, quantize, train
from quaver.cli.verify import verify
from quaver.errors import QuaverError, StoppedError


def with_plain_errors(command: Callable[..., None]) -> Callable[..., None]:
    """An error a user can cause is one message and exit code 2; a signal is a word and the code that shells expect."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        errors = progress_console()
        try:
            with as_lines():
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


app = typer.Typer(cls=TranslatedGroup, no_args_is_help=True, pretty_exceptions_enable=False)
ANY_NAME = {"token_normalize_func": by_any_name}
SPELLINGS = dict.fromkeys((calibrate, convert, verify, run_tester), BOTH_SPELLINGS) | dict.fromkeys(
    (train, quantize, analyze), ANY_NAME
)
COMMANDS = (
    demo,
    train,
    quantize,
    calibrate,
    check,
    convert,
    export,
    verify,
    bench,
    analyze,
    report,
    convert_data,
    run_tester,
)
for command in COMMANDS:
    app.command(
        "test" if command is run_tester else None,
        cls=FlagsCommand if command in (train, quantize) else TranslatedCommand,
        context_settings=SPELLINGS.get(command),
    )(with_plain_errors(command))


def show_version(asked: bool) -> None:
    """The version, and nothing else."""
    if asked:
        print(f"quaver {__version__}")
        raise typer.Exit


@app.callback()
def quaver(
    lang: Lang = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Quantization-aware training for PyTorch vision models, from float to int8."""


def main() -> None:
    """Run a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # names of files may be in any encoding
    app(prog_name="quaver")  # as python -m quaver, too: help and completion are the same
