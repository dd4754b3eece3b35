"""Write files so that a crash leaves the old one."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` in one step: until it is all on disk, what was there stays."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, must outlast a crash
    finally:
        os.close(folder)
