"""``quaver verify``: does the artefact compute what was trained?"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from quaver.cli.batches import Source, Split, image_size_of, open_batches
from quaver.cli.figures import refuse_unwritable, write_report
from quaver.cli.flags import as_in_a_recipe
from quaver.machine.cpu import cpu
from quaver.measure.verify import Verification
from quaver.measure.verify import verify as run_verify
from quaver.program.storage import load
from quaver.runtime.artefact import find
from quaver.runtime.trial import tried


def verify(
    program: Annotated[Path, typer.Argument(help="Folder of the program (quaver.save): prepared, frozen or int8.")],
    artefact: Annotated[Path, typer.Argument(help="The exported model, or its folder.")],
    data: Annotated[
        str | None,
        typer.Argument(
            help="Binary data file (quaver convert-data), or a data set's folder or name. Or give --dataset and --data_dir."
        ),
    ] = None,
    dataset: Annotated[str, as_in_a_recipe("dataset")] = "auto",
    data_dir: Annotated[str, as_in_a_recipe("data_dir")] = "",
    split: Annotated[Split, typer.Option(help="Which images of a data set.", rich_help_panel="Data")] = Split.VAL,
    threshold: Annotated[float, typer.Option(help="Least agreement for exit code 0.", min=0, max=1)] = 0.999,
    batch_size: Annotated[int, typer.Option(help="Images per batch.", min=1)] = 50,
    batch_num: Annotated[int, typer.Option(help="Batches to compare; 0: all.", min=0)] = 0,
    layers: Annotated[bool, typer.Option(help="Compare the integers of every quantized tensor, too.")] = True,
    threads: Annotated[int, typer.Option(help="Threads of the engine.", min=1)] = 1,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Run the same images through the simulation and the real engine, and compare. Exit code 1 below the threshold."""
    console = Console()
    refuse_unwritable(json_path)
    simulated = load(program)
    source = Source(
        data=data, dataset=dataset, data_dir=data_dir, split=split.value, batch_size=batch_size, batch_num=batch_num
    )
    images = open_batches(source, image_size_of(simulated))
    tried(find(artefact))
    shown = track(images.batches, "comparing", total=images.count, console=console)
    result = run_verify(simulated, artefact, shown, layers=layers, threads=threads)
    show(console, result)
    if json_path is not None:
        write_report(json_path, result.record() | {"threshold": threshold})
    if result.agreement < threshold:
        console.print(f"[red]agreement {result.agreement:.4%} is below {threshold:.4%}[/]")
        raise typer.Exit(1)


def show(console: Console, result: Verification) -> None:
    """The findings, a line each."""
    console.print(f"{result.engine} on {cpu().words()}", highlight=False)
    if result.accuracy_simulated is not None:
        for title, one, five in (
            ("simulated", result.accuracy_simulated, result.top5_simulated),
            ("deployed", result.accuracy_deployed, result.top5_deployed),
        ):
            console.print(f"{title:10} top-1 {one:.2%}  top-5 {five:.2%}")
    console.print(f"agreement  {result.agreement:.4%} of {result.images} images")
    console.print(f"logits     differ by at most {result.largest_difference:.3g} steps of the output scale")
    if not result.layers:
        return
    first, worst = result.first_layer, result.worst_layer
    if first is None or worst is None:
        console.print(f"integers   equal at all {len(result.layers)} quantized tensors")
        return
    for title, layer in (("first", first), ("worst", worst)):
        console.print(
            f"{title:10} {layer.name!r}: {layer.differ} of {layer.size} integers differ ({layer.share:.2e}), "
            f"by at most {layer.largest}"
        )
