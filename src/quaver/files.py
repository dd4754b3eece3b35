"""Write files so that a crash leaves the old one."""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO


def write_atomically(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` in one step: until it is all on disk, what was there stays."""
    draft = _draft_of(path)
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path)


class Draft:
    """A file to be written piece by piece, which takes the place of ``path`` in one step when the ``with`` block ends.

    An error in the block leaves what was there, and no draft. A killed process leaves a draft, which the next one to write
    the same file takes over; while one writes, another is refused (``BlockingIOError``).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.draft = _draft_of(path)

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
            # last, for the lock goes with it; after an error, what it still holds may not fit and need not
            with suppress(OSError):
                self.file.close()

    def _lock(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not self.draft.exists() or not os.path.samestat(os.stat(self.draft), os.fstat(self.file.fileno())):
            raise BlockingIOError(errno.EAGAIN, "another process has just written it")

    def _take_place(self) -> None:
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            os.replace(self.draft, self.path)
        except BaseException:
            self.draft.unlink(missing_ok=True)
            raise
        _sync_folder(self.path)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft")


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, must outlast a crash
    finally:
        os.close(folder)
