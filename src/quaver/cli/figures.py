"""Figures that a command ends with, as a file."""

import json
from pathlib import Path
from typing import Any

from quaver.errors import StorageError
from quaver.files import write_atomically


def write_report(path: Path, report: dict[str, Any]) -> None:
    """The figures as JSON, in one step."""
    try:
        write_atomically(path, (json.dumps(report, indent=2) + "\n").encode())
    except OSError as error:
        raise StorageError(f"{path}: the report could not be written: {error}.") from error
