"""One process at a time works on a run: a lock that goes with the process, however it ends, and says whose it is."""

import json
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from quaver.errors import ConfigError, StorageError
from quaver.locks import try_lock

NAME = "run.lock"
_PATIENCE = 0.2
"""Seconds to wait: whoever only asks whether a run is in progress holds its lock for a moment."""


def at_work(folder: Path) -> str:
    """The process that works on the run in a folder, in words; empty if none does."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        owner = _owner(handle)
        return _owner_text(owner) if _is_held(handle, owner) else ""
    finally:
        os.close(handle)


class RunLock:
    """Keeps other processes off a run until the ``with`` block ends. A killed process holds no lock."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.handle: int | None = None

    def __enter__(self) -> "RunLock":
        # forked workers must not keep the lock when their parent is gone
        os.register_at_fork(after_in_child=self._close)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.path is not None and self.handle is not None:
            with suppress(OSError):
                self.path.unlink()  # while it is held: nobody else's
        self._close()

    def take(self, folder: Path) -> None:
        """Lock the run in a folder, which is made if it is not there; an error that says who holds it."""
        path = folder / NAME
        if path == self.path:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._take(path)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written to: {error}.") from error

    def _take(self, path: Path) -> None:
        patience = time.monotonic() + _PATIENCE
        while self.handle is None:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            owner = _owner(handle)
            if not _is_held(handle, owner) and path.exists() and os.path.samestat(path.stat(), os.fstat(handle)):
                self.path, self.handle = path, handle
            else:
                os.close(handle)
                if time.monotonic() > patience:
                    way_out = "Wait for it, stop it, or name another folder."
                    raise ConfigError(f"{path.parent}: {_owner_text(owner)} is at work on this run. {way_out}")
                time.sleep(_PATIENCE / 20)
        if _is_elsewhere(owner):
            self._close()
            raise ConfigError(
                f"{path.parent}: {_owner_text(owner)} may be at work on this run, which cannot be seen from here. If it is "
                f"not, remove {path}."
            )
        os.truncate(self.handle, 0)
        os.pwrite(self.handle, json.dumps(_self()).encode(), 0)

    def _close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def _self() -> dict[str, Any]:
    return {"process": os.getpid(), "host": platform.node(), "boot": _boot()}


def _boot() -> str:
    """An identifier of this boot of this machine, which its containers share."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _owner(handle: int) -> dict[str, Any]:
    """Who wrote a lock; empty if it does not say."""
    with suppress(ValueError):
        owner = json.loads(os.pread(handle, 1000, 0))
        if isinstance(owner, dict) and type(owner.get("process")) is int and isinstance(owner.get("host"), str):
            return owner
    return {}


def _is_held(handle: int, owner: dict[str, Any]) -> bool:
    try:
        return not try_lock(handle)
    except OSError:  # no locks here: rely on what is written
        return owner.get("host") == platform.node() and _is_alive(owner["process"])


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _is_elsewhere(owner: dict[str, Any]) -> bool:
    """Whether a lock was written on another machine, whose locks may not be seen here."""
    return bool(owner) and owner["host"] != platform.node() and owner.get("boot") != _boot()


def _owner_text(owner: dict[str, Any]) -> str:
    return f"process {owner['process']} on {owner['host']}" if owner else "another process"
