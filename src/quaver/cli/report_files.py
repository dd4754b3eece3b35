"""Figures that a command ends with, as a file, and what follows from them."""

import json
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import typer
from rich.console import Console

from quaver.errors import ConfigError
from quaver.files import destination, is_stream, write_atomically, writing


def refuse_unwritable(path: Path | None, *, make_folder: bool = True) -> None:
    """An error now, not after the work, where a file could not be written."""
    if path is None:
        return
    if not (make_folder or path.absolute().parent.is_dir()):
        raise ConfigError(f"--json {path}: there is no folder {path.parent} to write it to. Make it, or name another.")
    with writing(f"--json {path}", "Name another file."):
        if path.is_dir():
            raise IsADirectoryError("this is a folder")
        if is_stream(path):
            return
        place = destination(path).parent
        place.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=place).close()


def fail_where_verify_failed(console: Console, report: dict[str, Any]) -> None:
    """Say that the engine computes something else than was trained, and exit with 1; everything is written by now."""
    if report.get("verify_failures"):
        from quaver.measure.verify import verdict

        for line in verdict(report["verify_failures"]):
            console.print(line, style="red", markup=False)
        console.print("What was trained is kept. quaver verify looks again, quaver export writes the file again.")
        raise typer.Exit(1)


def fail_where_target_was_missed(console: Console, report: dict[str, Any]) -> None:
    """Say that int8 loses more than was allowed, and exit with 1; everything is written by now."""
    if not report.get("target_met", True):
        lost, wanted = report["points_lost"], report["target_drop"]
        console.print(
            f"int8 loses {lost:.2f} points on the test images, and {wanted:g} were allowed (--target_drop).", style="red"
        )
        if report["held_out_points_lost"] <= wanted:
            console.print(
                f"On the {report['held_out_images']} images held out, by which it was chosen, it loses less. Allow less "
                "with --target_drop, to leave room for chance."
            )
        console.print("What was trained is kept. Train longer (--num_epochs), or leave more layers float (quaver analyze).")
        raise typer.Exit(1)


def write_report(path: Path, report: dict[str, Any]) -> None:
    """The figures as JSON, in one step."""
    write_file(path, (json.dumps(report, indent=2) + "\n").encode())


def write_file(path: Path, content: bytes) -> None:
    """A file of a command, in one step."""
    with writing(path, "What was there is untouched."):
        write_atomically(path, content)
