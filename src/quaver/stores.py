"""An index, which is a sealed JSON file, and the tensors that it names: replaced in one step, by any number of writers.

Tensors are named by their content, and an index in its place names tensors in theirs: whenever a crash comes, or another
writer, a folder holds the old pair or the new one. Only files that an index names are ever removed.
"""

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quaver.errors import StorageError
from quaver.files import dead_drafts, destination, draft_of, sync_folder, write_atomically
from quaver.formats import Format
from quaver.locks import folder_lock
from quaver.reading import MOST_BINARY, read_bytes


class UnconfirmedError(OSError):
    """A pair is in its place, but the disk did not confirm it: a crash may bring back the one before."""


_BY_CONTENT = re.compile(r".+-[0-9a-f]{16}\.safetensors")


@dataclass(frozen=True)
class Store:
    """The indices of a format in a folder; each has the name of its tensors under ``key``."""

    folder: Path
    format: Format
    key: str

    def put(self, name: str, stem: str, body: dict[str, Any], content: bytes) -> None:
        """Write a pair, in place of the one of the same name. If that fails (``OSError``), there is no new file."""
        digest = hashlib.sha256(content).hexdigest()
        tensors = f"{stem}-{digest[:16]}.safetensors"
        sealed = self.format.sealed(body | {self.key: tensors, f"{self.key}_sha256": digest})
        index, new = self.folder / name, self.folder / tensors
        self.folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(self.folder) as alone:
            if alone:
                self._sweep(index)
            old, was_there = self.tensors_of(index), new.exists()
            try:
                with draft_of(index, sealed) as draft:  # before the tensors: should they be left, it says whose they are
                    write_atomically(new, content)
                    os.replace(draft, destination(index))
            except BaseException:
                if alone and not was_there:
                    self._drop_unnamed(new)
                raise
            _confirm(index)
            if alone:
                self._drop_unnamed(old)

    def get(self, name: str) -> tuple[dict[str, Any], bytes]:
        """An index and the content of its tensors; a ``StorageError`` if they are not what was written."""
        index = self.folder / name
        try:
            try:
                return self._read(index)
            except FileNotFoundError:  # they are missing, or another pair has just been put in their place
                with folder_lock(self.folder, shared=True):
                    return self._read(index)
        except FileNotFoundError as error:
            message = f"{index}: its {self.key} file is missing: {error}. {self.format.if_damaged}"
            raise StorageError(message.rstrip()) from error
        except OSError as error:
            raise StorageError(f"{index}: its {self.key} file cannot be read: {error}.") from error

    def remove(self, name: str) -> None:
        """Remove an index and the tensors it names, if it is intact and ours."""
        index = self.folder / name
        with folder_lock(self.folder) as alone:
            tensors = self.tensors_of(index)
            if alone and tensors is not None:
                index.unlink(missing_ok=True)
                self._drop_unnamed(tensors)

    def tensors_of(self, index: Path) -> Path | None:
        """The file that an index names; None if it is missing or damaged, or names none as we would."""
        with suppress(StorageError):
            name = self.format.unsealed(index).get(self.key)
            if isinstance(name, str) and Path(name).name == name and _BY_CONTENT.fullmatch(name):
                return self.folder / name
        return None

    def _read(self, index: Path) -> tuple[dict[str, Any], bytes]:
        body = self.format.unsealed(index)
        name = body.get(self.key)
        if not isinstance(name, str) or "\0" in name:
            raise StorageError(f"{index}: does not say where its {self.key} are.")
        file = self.folder / Path(name).name
        content = read_bytes(file, MOST_BINARY)
        if hashlib.sha256(content).hexdigest() != body.get(f"{self.key}_sha256"):
            raise StorageError(f"{file}: the file is damaged: its checksum differs from the one saved.")
        return body, content

    def _sweep(self, index: Path) -> None:
        """Remove what killed processes left of their attempts to write an index."""
        for draft in dead_drafts(index):
            tensors = self.tensors_of(draft)
            if tensors is not None:
                for part in dead_drafts(tensors):
                    part.unlink(missing_ok=True)
                self._drop_unnamed(tensors)
            draft.unlink(missing_ok=True)

    def _drop_unnamed(self, tensors: Path | None) -> None:
        if tensors is None or tensors in map(self.tensors_of, self.folder.glob("*.json")):
            return
        with suppress(OSError):  # a leftover costs only its bytes
            tensors.unlink(missing_ok=True)


def _confirm(index: Path) -> None:
    try:
        sync_folder(destination(index).parent)
    except OSError as error:
        raise UnconfirmedError(*error.args) from error
