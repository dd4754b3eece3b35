"""``quaver verify``: does the artefact compute what was trained?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quaver.cli.consoles import progress_bar, results_console
from quaver.cli.flags import JsonFile, Threads, with_flags_of
from quaver.cli.image_source import Source, as_taken, image_size_of, open_batches
from quaver.cli.notices import name_others
from quaver.cli.report_files import refuse_unwritable, write_report
from quaver.machine.cpu import cpu

if TYPE_CHECKING:
    from quaver.measure.verify import Verification


@with_flags_of(Source, "source")
def verify(
    program: Annotated[Path, typer.Argument(help="Folder of the program (quaver.save): prepared, frozen or int8.")],
    artefact: Annotated[Path, typer.Argument(help="The exported model, or its folder.")],
    source: Source,
    threshold: Annotated[float, typer.Option(help="Least agreement, where outputs are class scores.", min=0, max=1)] = 0.999,
    task: Annotated[
        str | None,
        typer.Option(
            help="What the outputs are for: classification, segmentation, detection, embedding or regression. Without it, "
            "their shapes say whether they hold classes, maps of classes or values."
        ),
    ] = None,
    allow_steps: Annotated[
        float | None,
        typer.Option(
            help="Steps that a value may be off before it is rounded, at every tensor. Without it: the last bit of a float "
            "where the engine is exact, 1/100 where its float arithmetic is its own.",
            min=0,
        ),
    ] = None,
    allow_share: Annotated[
        float, typer.Option(help="Share of every tensor's integers that may differ by more.", min=0, max=1)
    ] = 0.0,
    layers: Annotated[bool, typer.Option(help="Compare the integers of every quantized tensor, too.")] = True,
    threads: Threads = 1,
    json_path: JsonFile = None,
) -> None:
    """Run the same images through the simulation and the real engine. Exit code 1 where any tensor differs."""
    from quaver.measure.verify import verify as run_verify
    from quaver.program.storage import load
    from quaver.runtime.artefact import find, image_input, provenance
    from quaver.runtime.trial import tried

    console = results_console()
    refuse_unwritable(json_path)
    simulated = load(program)
    file = find(artefact)
    name_others(artefact)
    images = as_taken(open_batches(source, image_size_of(simulated)), image_input(file, provenance(file)))
    tried(file)
    with progress_bar() as progress:
        result = run_verify(
            simulated,
            artefact,
            progress.track(images.batches, images.count, description="comparing"),
            layers=layers,
            threads=threads,
            threshold=threshold,
            task=task,
            allow_steps=allow_steps,
            allow_share=allow_share,
        )
    console.print(f"{result.engine} on {cpu().words()}")
    show(console, result)
    if json_path is not None:
        write_report(json_path, result.record() | {"threshold": threshold})
    if not result.passed:
        raise typer.Exit(1)


def show(console: Console, result: "Verification") -> None:
    """The findings, and the verdict in its colour."""
    from quaver.measure.verify import verdict

    for line in result.lines():
        console.print(line, markup=False)
    for line in verdict(result.failures):
        console.print(line, markup=False, style="" if result.passed else "red")
