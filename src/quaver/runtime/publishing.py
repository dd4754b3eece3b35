"""The files of artefacts take their places together, whenever a crash comes.

They are written into a draft folder beside their places. One rename makes that ``.quaver-incoming``, and is the step that
counts: what lies in there belongs one level up. Whoever comes next, to read or to write, brings it there.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from quaver.engines import suffixes, weights_beside
from quaver.errors import StorageError
from quaver.files import is_stream, sync_folder, write_atomically
from quaver.locks import folder_lock, try_lock

INCOMING = ".quaver-incoming"
_DRAFT = re.compile(r"\.quaver-draft-[0-9a-f]{8}")


@contextmanager
def draft_in(folder: Path) -> Iterator[Path]:
    """A folder for files that are to be published in ``folder``, gone when the block ends; those of the dead go first."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder) as alone:
        if alone:
            _sweep(folder)
        draft = folder / f".quaver-draft-{token_hex(4)}"
        draft.mkdir()
        handle = os.open(draft, os.O_RDONLY)
        with suppress(OSError):  # without locks nobody sweeps
            try_lock(handle)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(handle)  # last: who holds it is at work


def publish(draft: Path) -> None:
    """Put the files in a draft's folders in their places: all of them, or, should this fail, none."""
    folder, files = draft.parent, sorted(draft.glob("*/*"))
    _refuse_places([folder / file.name for file in files])
    for file in files:
        with open(file, "rb") as written:
            os.fsync(written.fileno())
    for written_folder in {file.parent for file in files} | {draft}:
        sync_folder(written_folder)
    with folder_lock(folder):
        _bring(folder)
        os.replace(draft, folder / INCOMING)
        _bring_to_its_end(folder)


def settle(folder: Path) -> None:
    """Bring to their places what an export that was cut off had published; mostly there is nothing to do."""
    if (folder / INCOMING).is_dir():
        with folder_lock(folder):
            _bring_to_its_end(folder)


def _bring_to_its_end(folder: Path) -> None:
    try:
        _bring(folder)
    except OSError as error:
        raise StorageError(
            f"{folder}: an export was cut off here, and cannot be brought to its end: {error}. Export the program again."
        ) from error


def _bring(folder: Path) -> None:
    incoming = folder / INCOMING
    if not incoming.is_dir():
        return
    sync_folder(folder)  # from here on it is the new ones that count
    files = [file for file in incoming.glob("*/*") if not file.is_symlink() and not file.name.startswith(".")]
    of_networks, beside = suffixes(), weights_beside(files)  # from a folder that somebody else made, nothing else
    networks = [file for file in files if file.suffix in of_networks]
    beside_networks = [file for file in files if file.with_suffix("").suffix in of_networks]
    scripts, origins = ([file for file in beside_networks if file.suffix == suffix] for suffix in (".py", ".json"))
    weights = {network: file for network, file in beside.items() if file in files}
    for network in weights:  # one must not meet another's weights: rather none for a moment
        if not (folder / network.name).is_symlink():
            (folder / network.name).unlink(missing_ok=True)
    for file in (*weights.values(), *networks, *scripts, *origins):  # those last that say which belong together
        if (folder / file.name).is_symlink():
            write_atomically(folder / file.name, file.read_bytes())
            file.unlink()
        else:
            os.replace(file, folder / file.name)
    sync_folder(folder)
    shutil.rmtree(incoming)


def _refuse_places(places: list[Path]) -> None:
    refused = [*filter(Path.is_dir, places), *filter(is_stream, places)]
    if refused:
        raise StorageError(f"{refused[0]}: this is a folder or a device, not a file. Name another.")


def _sweep(folder: Path) -> None:
    for left in folder.iterdir():
        if not _DRAFT.fullmatch(left.name) or left.is_symlink() or not left.is_dir():
            continue
        handle = os.open(left, os.O_RDONLY)
        try:
            if try_lock(handle):
                shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(handle)
