"""``quaver export`` and ``quaver convert``: from a saved program to files that engines run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from quaver.cli.report_files import warn
from quaver.deployment import without_mobile_file, write_tree
from quaver.engines import DEFAULT, ENGINES
from quaver.export import export as write
from quaver.pipeline import convert as freeze
from quaver.program import Stage
from quaver.program.storage import load


def export(
    program: Annotated[Path, typer.Argument(help="Folder of a frozen, int8 or float program (quaver.save).")],
    out: Annotated[Path, typer.Argument(help="Folder, or file with the engine's suffix.")],
    target: Annotated[str, typer.Option(help=f"The engine: {', '.join(ENGINES)}.")] = DEFAULT.name,
    same_on_amx: Annotated[
        bool,
        typer.Option("--same_on_amx/--no_same_on_amx", help="The same bits on processors with AMX; without, faster there."),
    ] = True,
) -> None:
    """Write a program for an engine, open the file again and compare."""
    console = Console()
    with console.status(f"writing for {target}"):
        file = write(load(program), out, target=target, same_on_amx=same_on_amx)
    console.print(f"{file}: written, opened again and compared.", highlight=False)


def convert(
    program: Annotated[Path, typer.Argument(help="Folder of the trained, prepared program (quaver.save).")],
    out: Annotated[Path, typer.Argument(help="Folder that float/, int8/ and mobile/ go to.")],
) -> None:
    """Freeze a trained program and write the tree of artefacts: float/, int8/ and mobile/, each runnable."""
    console = Console()
    trained = load(program)
    frozen = freeze(trained) if trained.stage is not Stage.FROZEN else trained
    left_out: list[str] = []
    with console.status("writing float/, int8/ and mobile/"):
        files = write_tree(frozen, out, left_out=left_out.append)
    for file in files:
        console.print(str(file), highlight=False)
    for words in left_out:
        warn(console, words)
    if missing := without_mobile_file(out):
        console.print(missing, highlight=False, markup=False, soft_wrap=True)
