"""The records of a run as one HTML page. Nothing is measured here: files in, a file out."""

from pathlib import Path

from quaver.errors import ConfigError, StorageError
from quaver.files import write_atomically
from quaver.report.gather import Run, gather
from quaver.report.page import page


def write_report(folders: list[Path], out: Path) -> list[Run]:
    """Write the report on one run, or on two side by side, to ``out``; gives what was read."""
    if len(folders) not in (1, 2):
        raise ConfigError(f"report: takes one folder, or two to compare, not {len(folders)}.")
    runs = [gather(folder) for folder in folders]
    text = page(runs)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, text.encode("utf-8", "backslashreplace"))  # names of folders may be in any encoding
    except OSError as error:
        raise StorageError(f"{out}: the report could not be written: {error}.") from error
    return runs


__all__ = ["Run", "gather", "page", "write_report"]
