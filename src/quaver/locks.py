"""Locks between processes, and between threads. They go with the process that holds them, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]


def try_lock(handle: int) -> bool:
    """Whether an open file is now this one's alone. ``OSError`` where the file system has no locks."""
    if fcntl is None:
        raise OSError("this system has no locks on files")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def folder_lock(folder: Path, *, shared: bool = False) -> Iterator[bool]:
    """Wait until nobody else holds the folder, and hold it; several may hold it ``shared``.

    Gives whether that worked: without locks in the file system everyone goes on at once, and must delete nothing.
    """
    handle, locked = None, False
    try:
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
                locked = True
        yield locked
    finally:
        if handle is not None:
            if locked:
                fcntl.flock(handle, fcntl.LOCK_UN)  # closing it is not enough where another thread has forked meanwhile
            os.close(handle)
