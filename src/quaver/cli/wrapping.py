"""Text that may go on in the next line between any two Chinese characters; Rich breaks lines at spaces alone."""

import re
from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.containers import Lines
from rich.text import Text

# A character with its brackets and stops, or a word of another script: what stays in one line, and the spaces behind it.
UNIT = re.compile(r"[（“]*(?:[⺀-⿟぀-鿿]|[^\s⺀-鿿！-～“”]+)?[、。，；：）”]*\s*")


class WrappingText(Text):
    """A text that is broken so."""

    @classmethod
    def of(cls, text: Text) -> "WrappingText":
        """The same text with the same colours."""
        return cls(text.plain, style=text.style, spans=text.spans)

    def wrap(self, console: Console, width: int, **how: Any) -> Lines:  # type: ignore[override]
        """The lines of the text, each as long as fits into ``width``."""
        broken = [part for line in self.split(allow_blank=True) for part in line.divide(breaks(line.plain, width))]
        for part in broken:
            part.rstrip()  # Rich would count characters here, not cells
        return Text("\n").join(broken).wrap(console, width, **how)


def breaks(line: str, width: int) -> Iterator[int]:
    """Where a line is to be broken so that no part takes more than ``width`` cells; a word that does is left to Rich.

    >>> line = "从 --data_dir 读取（默认）。"
    >>> [line[start:] for start in breaks(line, 18)], [line[start:] for start in breaks(line, 10)]
    (['（默认）。'], ['--data_dir 读取（默认）。', '读取（默认）。', '认）。'])
    """
    used = 0
    for unit in UNIT.finditer(line):
        if used and used + cell_len(unit[0].rstrip()) > width:
            yield unit.start()
            used = 0
        used += cell_len(unit[0])
