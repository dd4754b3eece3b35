"""Reading files that may be anything: no waiting on pipes, nothing too large, nothing nested too deep."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MOST_TEXT = 1 << 28  # bytes of a file that is read and parsed at once; our largest have about 10 MB
MOST_BINARY = 1 << 40  # bytes of a file of tensors, or of one that an engine reads
DEEPEST = 100  # levels of nesting; ours have about a dozen


def open_file(path: str | Path) -> BinaryIO:
    """A regular file, open for reading. A pipe, which could block for ever, or a device is an `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(mode := os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "this is a pipe or a device, not a file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: str | Path, most: int = MOST_TEXT) -> bytes:
    """The content of a regular file of at most ``most`` bytes; a larger one is an `OSError`."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"the file has {size} bytes, and at most {most} can be right", str(path))
        return file.read(size)


def read_text(path: str | Path, most: int = MOST_TEXT) -> str:
    """The text of a regular file, in UTF-8 with or without a byte order mark; one in another encoding is a `ValueError`."""
    return read_bytes(path, most).decode("utf-8-sig")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; a ``ValueError`` if it is invalid, names a key twice, or is nested deeper than any file of ours."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if any(depth > DEEPEST for depth in _depths(value)):
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.60} stands twice in one object")
    return table


def _depths(value: Any) -> Iterator[int]:
    """How deep each list and object lies."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, dict | list):
            yield depth
            waiting.extend((inner, depth + 1) for inner in (item.values() if isinstance(item, dict) else item))
