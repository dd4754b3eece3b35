"""The list of a folder's images: a path and a label per line, as ILSVRC2012 has it."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quaver.errors import DataError
from quaver.reading import read_bytes

_SHOWN = 20


@dataclass(frozen=True)
class ListedImage:
    """An image, and where it stands in the list."""

    line: int
    path: str
    label: int


def read_image_list(path: str | Path, classes: int) -> list[ListedImage]:
    """The images of a list; the label is the last word of a line, so a path may contain spaces. Empty lines say nothing.

    Lines that are wrong are reported all at once.
    """
    path = Path(path)
    try:
        # a name that is not UTF-8 is the same bytes again when its file is opened
        text = read_bytes(path).decode("utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise DataError(f"{path}: the list cannot be read: {error.strerror}.") from error
    images, problems = [], []
    for number, line in enumerate(re.split("\r\n|\r|\n", text), 1):
        if not line.strip():
            continue
        name, label, problem = _parsed(line, classes)
        if problem:
            problems.append(f"line {number}: {problem}")
        else:
            images.append(ListedImage(number, name, label))
    if problems:
        raise DataError(f"{path}: {count_of(problems, 'wrong line')}:\n{shortened(problems)}\nA line is a path and a label.")
    if not images:
        raise DataError(f"{path}: the list is empty. It needs a path and a label per line.")
    return images


def refuse_missing(folder: str | Path, images: Iterable[ListedImage]) -> None:
    """Images that are not there are reported all at once."""
    folder = Path(folder)
    missing = [f"line {image.line}: {image.path!r}" for image in images if not os.path.isfile(folder / image.path)]
    if missing:
        raise DataError(
            f"{folder}: {count_of(missing, 'image')} of the list not found:\n{shortened(missing)}\n"
            "Paths are relative to the folder. --skip-broken leaves out what is missing."
        )


def shortened(lines: list[str]) -> str:
    """The first lines, indented, and how many more there are."""
    more = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join(f"  {line}" for line in lines[:_SHOWN] + more)


def count_of(things: list[str], name: str) -> str:
    """``1 image``, ``2 images``."""
    return f"{len(things)} {name}{'s' if len(things) != 1 else ''}"


def _parsed(line: str, classes: int) -> tuple[str, int, str]:
    """Path, label, and what is wrong with the line, if anything is."""
    parts = line.strip().rsplit(maxsplit=1)
    if len(parts) == 1:
        return "", 0, f"there is no label: {parts[0]!r}."
    name, label = parts
    digits = label.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return name, 0, f"the label is not a whole number: {label!r}."
    if len(digits) > 18 or not 0 <= int(label) < classes:  # int() refuses to read some thousand digits
        return name, 0, f"the label {label} is outside 0..{classes - 1}."
    return name, int(label), ""
