"""``quaver report``: the records of a run as one page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from quaver.cli.consoles import results_console


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folder of a run (quaver demo, quaver quantize); two to compare.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file; default: report.html in the folder, or comparison.html in the second of two."),
    ] = None,
) -> None:
    """Write one HTML page on a run, or on two side by side; it needs nothing but a browser."""
    from quaver.report import write_report

    console = results_console()
    file = out if out is not None else folders[-1] / ("comparison.html" if len(folders) > 1 else "report.html")
    runs = write_report(folders, file)
    for run in runs:
        for trouble in run.troubles:
            console.print(f"[yellow]left out:[/] {escape(trouble)}")
        for what, command in run.missing:
            console.print(escape(f"not shown: {what.lower()}; made by: {command}"))
    console.print(escape(f"{file}: written."))
