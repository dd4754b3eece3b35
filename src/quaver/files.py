"""Write files atomically: a crash leaves the old file, and concurrent writers leave one complete file."""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import BinaryIO

from quaver.errors import QuaverError, StorageError
from quaver.locks import try_lock

_OPEN_FILE = re.compile(r"/(?:dev|proc/(?:self|thread-self))/fd/(\d+)")
_STANDARD = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


@contextmanager
def writing(place: Path | str, way_out: str, kind: type[QuaverError] = StorageError) -> Iterator[None]:
    """While ``place`` is written: an error of the disk becomes one of ours that names it, and says the ``way_out``."""
    try:
        yield
    except OSError as error:
        raise kind(f"{place}: could not be written: {error}. {way_out}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` in one step: until it is all on disk, what was there stays.

    A link stays, and what it points to is replaced. A device or a pipe is written into.
    """
    if is_stream(path):
        _write_into(path, content)
        return
    with draft_of(path, content) as draft:
        take_place(draft, destination(path))


@contextmanager
def draft_of(path: Path, content: bytes) -> Iterator[Path]:
    """A file beside ``path`` with ``content``, on disk; it is removed, unless the block gives it another name."""
    place = destination(path)
    for left in dead_drafts(path):
        left.unlink(missing_ok=True)
    draft, file = _own_draft(place)
    try:
        with file:  # closed last: its lock says that somebody is writing
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            yield draft
    finally:
        draft.unlink(missing_ok=True)


def take_place(draft: Path, path: Path) -> None:
    """Give a draft its name, in the one step that counts."""
    os.replace(draft, path)
    sync_folder(path.parent)


def dead_drafts(path: Path) -> list[Path]:
    """What processes that were killed left of their attempts to write ``path``."""
    place = destination(path)
    form = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{8}}\.draft")
    return [file for file in place.parent.iterdir() if form.fullmatch(file.name) and _is_left(file)]


def _is_left(draft: Path) -> bool:
    with suppress(OSError), open(draft, "rb") as file:
        return try_lock(file.fileno())
    return False


def _own_draft(place: Path) -> tuple[Path, BinaryIO]:
    """A new file beside ``place``, locked, so that nobody takes it for an abandoned one."""
    while True:
        draft = place.with_name(f".{place.name}.{token_hex(4)}.draft")
        file = open(draft, "xb")  # noqa: SIM115, its lock goes with it
        with suppress(OSError):  # no locks here: then nobody takes a draft for abandoned
            if not try_lock(file.fileno()) or not _is_still(draft, file):
                file.close()  # somebody looked just then, and removed it
                continue
        return draft, file


def destination(path: Path) -> Path:
    """Where a file is that is written to ``path``: behind its links, if it is one."""
    if not path.is_symlink():
        return path
    place = Path(os.path.realpath(path))
    if place.is_symlink():  # it points to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return place


def name_or_content(path: Path) -> str | bytes:
    """A file for libraries that know names in UTF-8 only: its name, or, where that is in another encoding, what it holds."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.read_bytes()
    return str(path)


def is_stream(path: Path) -> bool:
    """Whether ``path`` is a device, a pipe or a file that this process has open: it is written into, not replaced."""
    if _descriptor(path) is not None:
        return True
    with suppress(OSError):
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def _descriptor(path: Path) -> int | None:
    """The open file of this process that a path such as ``/dev/stdout`` names."""
    name = os.path.abspath(path)
    match = _OPEN_FILE.fullmatch(name)
    return int(match[1]) if match else _STANDARD.get(name)


def _write_into(path: Path, content: bytes) -> None:
    sys.stdout.flush()  # what was printed before comes before
    number = _descriptor(path)
    with open(path if number is None else os.dup(number), "wb") as file:
        file.write(content)


class Draft:
    """A file to be written piece by piece, which takes the place of ``path`` in one step when the ``with`` block ends.

    An error in the block leaves what was there, and no draft. A killed process leaves a draft, which the next one to write
    the same file takes over; while one writes, another is refused (``BlockingIOError``).
    """

    def __init__(self, path: Path) -> None:
        self.path = destination(path)
        self.draft = self.path.with_name(f".{self.path.name}.draft")

    def __enter__(self) -> BinaryIO:
        # not emptied before it is locked: it may be another process's, at work
        self.file: BinaryIO = os.fdopen(os.open(self.draft, os.O_RDWR | os.O_CREAT, 0o666), "wb")
        try:
            self._lock()
            self.file.truncate(0)
        except BaseException:
            self.file.close()
            raise
        return self.file

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._take_place()
            else:
                self.draft.unlink(missing_ok=True)
        finally:
            # last, because the lock goes with it; after an error, unwritten bytes may not fit, and need not
            with suppress(OSError):
                self.file.close()

    def _lock(self) -> None:
        if not try_lock(self.file.fileno()):
            raise BlockingIOError(errno.EAGAIN, "another process is writing it")
        if not _is_still(self.draft, self.file):
            raise BlockingIOError(errno.EAGAIN, "another process has just written it")

    def _take_place(self) -> None:
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            take_place(self.draft, self.path)
        except BaseException:
            self.draft.unlink(missing_ok=True)
            raise


def _is_still(path: Path, file: BinaryIO) -> bool:
    """Whether an open file goes by this name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    return False


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlast a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
