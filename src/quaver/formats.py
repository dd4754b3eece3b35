"""Our own JSON file formats: a name and version tell them from other files, a checksum from damaged ones."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quaver.errors import StorageError
from quaver.reading import parse_json, read_text


@dataclass(frozen=True)
class Format:
    """A kind of file: its name and version as the file states them, and the words that errors need."""

    name: str
    version: int
    noun: str
    made_by: str
    if_missing: str
    if_damaged: str = ""

    @property
    def key(self) -> str:
        """The key that holds the body of a sealed file."""
        return self.name.rpartition(".")[2]

    @property
    def stamp(self) -> dict[str, Any]:
        """What a file of this format begins with."""
        return {"format": self.name, "version": self.version}

    def read(self, path: Path) -> dict[str, Any]:
        """What the file holds, if it is of this format and version."""
        try:
            whole = parse_json(read_text(path))
        except FileNotFoundError as error:
            raise StorageError(f"{path}: there is no such file. {self.if_missing}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"{path}: cannot be read: {error}.") from error
        except ValueError as error:
            raise self._damaged(path, f"is damaged or was cut off: {error}") from error
        if not isinstance(whole, dict) or whole.get("format") != self.name:
            raise StorageError(f"{path}: this is not {self.noun} that {self.made_by} wrote.")
        if whole.get("version") != self.version:
            raise StorageError(f"{path}: version {whole.get('version')!r} of the format; this Quaver reads {self.version}.")
        return {key: value for key, value in whole.items() if key not in self.stamp}

    def is_foreign(self, path: Path) -> bool:
        """Whether this is clearly a file of another kind: valid JSON without this format's name."""
        try:
            whole = parse_json(read_text(path))
        except (OSError, ValueError):
            return False
        return not isinstance(whole, dict) or whole.get("format") != self.name

    def sealed(self, body: dict[str, Any]) -> bytes:
        """A file that holds ``body`` and its checksum."""
        text = _plain(body)
        head = json.dumps(self.stamp | {"sha256": _digest(text)}, separators=(",", ":"))
        return f'{head[:-1]},"{self.key}":\n{text}\n}}\n'.encode()

    def unsealed(self, path: Path) -> dict[str, Any]:
        """The ``body`` of a sealed file, if it is what was written."""
        whole = self.read(path)
        body = whole.get(self.key)
        if not isinstance(body, dict) or _digest(_plain(body)) != whole.get("sha256"):
            raise self._damaged(path, "is damaged: its checksum differs from the one saved")
        return body

    def _damaged(self, path: Path, fact: str) -> StorageError:
        return StorageError(f"{path}: the file {fact}. {self.if_damaged}".rstrip())


def _plain(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
