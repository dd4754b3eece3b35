"""A checksum behind the content of a file, for engines that read damaged ones, too."""

import hashlib
from pathlib import Path

from quaver.errors import StorageError

_SEAL = b"QUAVERPT"
SEALED = len(_SEAL) + hashlib.sha256().digest_size
"""Bytes of the seal."""


def sealed(content: bytes) -> bytes:
    """The content of a file with the seal behind it."""
    return content + _SEAL + hashlib.sha256(content).digest()


def unsealed(path: Path) -> bytes:
    """The content of a file that Quaver wrote and nobody changed."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}.") from error
    content, seal = whole[:-SEALED], whole[-SEALED:]
    if not seal.startswith(_SEAL):
        raise StorageError(f"{path}: the file was cut off, or Quaver did not write it. Export the program again.")
    if sealed(content) != whole:
        raise StorageError(
            f"{path}: the file is damaged: its checksum differs from the one saved. Export the program again."
        )
    return content
