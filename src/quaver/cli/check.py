"""``quaver check``: is a recipe right? Every problem at once."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from quaver.config.load import read_yaml, recipe_of
from quaver.experiment.plausible import problems_of


def check(recipe: Annotated[Path, typer.Argument(help="Recipe file (YAML).")]) -> None:
    """Look a recipe over and report every problem, without running it. Exit code 1 if there is one."""
    found: list[str] = []
    read = recipe_of(read_yaml(recipe), str(recipe), found)
    for command in ("train", "quantize"):
        found += [f"{recipe}: {problem}" for problem in problems_of(read, command) if f"{recipe}: {problem}" not in found]
    console = Console(highlight=False, soft_wrap=True)
    for problem in found:
        console.print(problem, markup=False)
    if found:
        console.print(f"{len(found)} problem{'' if len(found) == 1 else 's'}")
        raise typer.Exit(1)
    console.print(f"{recipe}: nothing is wrong with it.", markup=False)
