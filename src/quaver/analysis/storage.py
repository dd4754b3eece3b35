"""An analysis as a JSON file."""

import json
from pathlib import Path
from typing import Any

from quaver.errors import StorageError
from quaver.files import write_atomically


def write(path: Path, content: dict[str, Any]) -> None:
    """Put the content at ``path`` in one step."""
    try:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (text + "\n").encode())
    except (OSError, ValueError) as error:  # ValueError: a figure is NaN or Inf, which JSON does not have
        raise StorageError(f"{path}: the analysis could not be written: {error}.") from error
