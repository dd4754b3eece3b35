"""Figures that a command ends with, as a file."""

import json
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from quaver.errors import StorageError
from quaver.files import destination, is_stream, write_atomically


def refuse_unwritable(path: Path | None) -> None:
    """An error now, not after the work, where a file could not be written; its folder is made."""
    if path is None:
        return
    try:
        if path.is_dir():
            raise IsADirectoryError("this is a folder")
        if is_stream(path):
            return
        place = destination(path).parent
        place.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=place).close()
    except OSError as error:
        raise StorageError(f"--json {path}: could not be written: {error}. Name another file.") from error


def write_report(path: Path, report: dict[str, Any]) -> None:
    """The figures as JSON, in one step."""
    write_file(path, (json.dumps(report, indent=2) + "\n").encode())


def write_file(path: Path, content: bytes) -> None:
    """A file of a command, in one step."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise StorageError(f"{path}: could not be written: {error}. What was there is untouched.") from error
