"""``quaver``: the commands, and how their errors are shown."""

import sys

import typer
from rich.console import Console

from quaver.cli.demo import demo
from quaver.errors import QuaverError

app = typer.Typer(
    help="Quantization-aware training for PyTorch vision models, from float to int8.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)


@app.callback()
def quaver() -> None:
    """Quantization-aware training for PyTorch vision models, from float to int8."""


def main() -> None:
    """Run a command; an error a user can cause is one message and exit code 2, Ctrl-C is exit code 130."""
    errors = Console(stderr=True, soft_wrap=True)
    try:
        app(standalone_mode=True)
    except QuaverError as error:
        errors.print(f"[red]error:[/] {error}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("stopped.")
        sys.exit(130)
