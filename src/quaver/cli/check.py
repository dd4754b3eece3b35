"""``quaver check``: is a recipe right, or a model file? Every problem at once. And what does this machine have?"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quaver.checking import check as check_options
from quaver.checking import one_of
from quaver.cli.consoles import progress_console, results_console
from quaver.cli.report_files import refuse_unwritable, write_report
from quaver.config.load import read_yaml, recipe_of
from quaver.engines import ENGINES, engine_of, suffixes
from quaver.errors import ConfigError
from quaver.machine.cpu import cpu

if TYPE_CHECKING:
    from quaver.measure.machine import Fact

STATUS_SYMBOLS = {"yes": "[green]✓[/]", "no": "[dim]–[/]", "doubtful": "[yellow]?[/]"}


def check(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe file (YAML), or a model file with --target.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Hold a model file against what this engine's documentation asks of it (tensorrt).")
    ] = None,
    this_machine: Annotated[
        bool, typer.Option("--machine", help="Show what this machine has, and what is missing for what.")
    ] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="With --machine: write it here.")] = None,
) -> None:
    """Look a recipe over, or a model file, and report every problem, without running it. Exit code 1 if there is one.

    --machine shows the processor and which of its features can be trusted, engines, accelerator and compilers.
    """
    if recipe is None and not this_machine:
        raise ConfigError("check: nothing to look at. Name a recipe file, or give --machine to look at this machine.")
    refuse_unwritable(json_path)
    console = results_console()
    if this_machine:
        from quaver.measure.machine import machine

        with progress_console().status("looking at this machine"):
            facts = list(machine())
        show_machine(console, facts)
        if json_path is not None:
            write_report(json_path, {"cpu": asdict(cpu()), "facts": [asdict(fact) for fact in facts]})
    if recipe is not None and (target is not None or recipe.is_dir() or recipe.suffix in suffixes()):
        check_file(console, recipe, target)
    elif recipe is not None:
        check_recipe(console, recipe)


def check_recipe(console: Console, recipe: Path) -> None:
    """Every problem of a recipe, a line each."""
    from quaver.experiment.recipe_checks import recipe_problems

    all_problems: list[str] = []
    read = recipe_of(read_yaml(recipe), str(recipe), all_problems)
    for command in ("train", "quantize"):
        problems = [f"{recipe}: {problem}" for problem in recipe_problems(read, command)]
        all_problems += [problem for problem in problems if problem not in all_problems]
    for problem in all_problems:
        console.print(problem, markup=False)
    if all_problems:
        console.print(f"{len(all_problems)} problem{'' if len(all_problems) == 1 else 's'}")
        raise typer.Exit(1)
    console.print(f"{recipe}: nothing is wrong with it.", markup=False)


def check_file(console: Console, file: Path, target: str | None) -> None:
    """Every rule of an engine that a model file breaks, a line each; only what the engine refuses counts as a problem."""
    from quaver.runtime.artefact import find, provenance

    with_rules = [name for name, engine in ENGINES.items() if engine.has_rules]
    file = find(file)
    own = engine_of(file, provenance(file))
    if target is None and not own.has_rules:
        raise ConfigError(
            f"check: {file}: was written for {own.title}, and there are no rules to hold it against. A file for another "
            f"engine is checked with --target ({', '.join(with_rules)}); quaver verify runs this one and compares it with "
            "its program."
        )
    target = target or own.name
    check_options("check", {"target": target}, {"target": one_of(*with_rules)})
    engine = ENGINES[target]
    broken = engine.broken_rules(file) or []
    for each in broken:
        console.print(f"{'refused' if each.fatal else 'note'}: {each}", markup=False)
    if any(each.fatal for each in broken):
        raise typer.Exit(1)
    console.print(f"{file}: keeps all that {engine.title}'s documentation asks of it.", markup=False)


def show_machine(console: Console, facts: "list[Fact]") -> None:
    """The facts as a table, area by area; what is missing or doubtful with what can be done about it."""
    table = Table("", "", "", "what for", title="This machine", box=SIMPLE_HEAD, title_style="bold")
    area = ""
    for fact in facts:
        if area and fact.area != area:
            table.add_section()
        title, area = ("" if fact.area == area else fact.area), fact.area
        what = escape(f"{fact.name} {fact.found}".strip())
        remedy = f"[yellow]{escape(fact.remedy)}[/]" if fact.remedy else ""
        uses = "\n".join(part for part in (escape(fact.use), remedy) if part)
        table.add_row(
            f"[bold]{title}[/]", STATUS_SYMBOLS[fact.state], what if fact.state == "yes" else f"[dim]{what}[/]", uses
        )
    console.print(table)
