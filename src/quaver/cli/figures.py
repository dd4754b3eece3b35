"""Figures that a command ends with, as a file."""

import json
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from quaver.errors import StorageError
from quaver.files import write_atomically


def refuse_unwritable(path: Path | None) -> None:
    """An error now, not after the work, where a file could not be written; its folder is made."""
    if path is None:
        return
    try:
        if path.is_dir():
            raise IsADirectoryError("this is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise StorageError(f"--json {path}: could not be written: {error}. Name another file.") from error


def write_report(path: Path, report: dict[str, Any]) -> None:
    """The figures as JSON, in one step."""
    try:
        write_atomically(path, (json.dumps(report, indent=2) + "\n").encode())
    except OSError as error:
        raise StorageError(f"{path}: the report could not be written: {error}.") from error
