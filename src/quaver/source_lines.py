"""The lines of source that an error came through, as the author of a model knows them."""

import linecache
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class SourceLine:
    """A line that was being executed: where it stands, the function it is in, and the object whose method that is."""

    file: str
    number: int
    function: str
    owner: Any = None

    @property
    def text(self) -> str:
        """The line as it is written."""
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.text!r}"


def source_lines(trace: TracebackType | None, without: tuple[str, ...]) -> list[SourceLine]:
    """The lines of a traceback, the innermost last; those in the folders ``without`` and in no file are left out."""
    return [
        SourceLine(frame.f_code.co_filename, number, frame.f_code.co_name, frame.f_locals.get("self"))
        for frame, number in traceback.walk_tb(trace)
        if not frame.f_code.co_filename.startswith((*without, "<"))
    ]
