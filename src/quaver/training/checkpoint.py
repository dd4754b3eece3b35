"""Checkpoints: a run's state as a safetensors and a JSON file, whole or not there, the last two kept.

The JSON file is written last and names the tensors' file with its checksum: whenever a crash comes, a checkpoint that has
its JSON file is whole. Nothing is pickled.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from torch import Tensor

from quaver.errors import StorageError
from quaver.files import write_atomically
from quaver.formats import Format
from quaver.reading import read_bytes
from quaver.records import MisfitError, decoded

FORMAT = Format("quaver.checkpoint", 1, "a checkpoint", "Quaver", if_missing="Training writes one.")
KEPT = 2
LARGEST = 1 << 40  # bytes of a file of tensors
Say = Callable[[str], None]


@dataclass(frozen=True)
class Checkpoint:
    """A run's state at one moment: its tensors by name, and everything else as plain values."""

    name: str
    tensors: dict[str, Tensor]
    record: dict[str, Any]


@dataclass(frozen=True)
class _Body:
    """What the JSON file holds: the record, and the name and checksum of the tensors' file."""

    record: dict[str, Any]
    tensors: str
    tensors_sha256: str


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in a folder; names sort in the order of time."""

    folder: Path

    def names(self) -> list[str]:
        """Every checkpoint that was finished, oldest first."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and drop those before the last two. If that fails, the ones before are as they were."""
        import safetensors.torch  # at first use: training without a folder works without it

        own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
        content = safetensors.torch.save(own)
        digest = hashlib.sha256(content).hexdigest()
        tensors = f"{checkpoint.name}-{digest[:16]}.safetensors"  # by content: one of the same name stays whole till the end
        body = {"record": _as_json(checkpoint.record), "tensors": tensors, "tensors_sha256": digest}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / tensors, content)
            write_atomically(self._record(checkpoint.name), FORMAT.sealed(body))
        except OSError as error:
            raise StorageError(self._not_written(checkpoint.name, error)) from error
        self._drop_all_but(self.names()[-KEPT:])

    def newest(self, say: Say) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None where none was written; ``say`` hears of damaged ones."""
        damage = []
        for name in reversed(self.names()):
            try:
                checkpoint = self.read(name)
            except StorageError as error:
                damage.append(str(error))
                continue
            for words in damage:
                say(f"{words} Going on from the one before, {name}.")
            return checkpoint
        if damage:
            raise StorageError(" ".join(damage) + " There is no other: start again without --checkpoint.")
        return None

    def read(self, name: str) -> Checkpoint:
        """One checkpoint, whole, or an error that says what is wrong with it."""
        import safetensors.torch

        try:
            body: _Body = decoded(_Body, FORMAT.unsealed(self._record(name)))
        except MisfitError as error:
            raise StorageError(f"{self._record(name)}: the checkpoint is damaged: {error}.") from error
        path = self.folder / Path(body.tensors).name
        try:
            content = read_bytes(path, LARGEST)
        except (OSError, ValueError) as error:
            raise StorageError(f"{path}: the checkpoint is damaged: {error}.") from error
        if hashlib.sha256(content).hexdigest() != body.tensors_sha256:
            raise StorageError(f"{path}: the checkpoint is damaged: its checksum differs from the one saved.")
        try:
            return Checkpoint(name, safetensors.torch.load(content), _from_json(body.record))
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise StorageError(f"{path}: the checkpoint is damaged: {error}.") from error

    def set_aside(self, after: str) -> None:
        """Put checkpoints newer than ``after`` out of the way: damaged ones, when a run goes on from the one before."""
        for name in self.names():
            if name > after:
                path = self._record(name)
                path.replace(path.with_suffix(".damaged"))

    def _drop_all_but(self, kept: list[str]) -> None:
        needed = {self._record(name).name for name in kept}
        for name in kept:
            with suppress(StorageError):  # a damaged one needs nothing
                needed.add(FORMAT.unsealed(self._record(name))["tensors"])
        for path in sorted(self.folder.iterdir()):  # a record goes before its tensors
            if path.name not in needed and path.suffix in (".json", ".safetensors", ".draft"):
                with suppress(OSError):  # the new checkpoint is in place; a leftover costs only its bytes
                    path.unlink()

    def _not_written(self, name: str, error: OSError) -> str:
        names = self.names()
        older = f"The checkpoint before, {names[-1]}, is intact" if names else "There is none before it"
        return (
            f"{self._record(name)}: the checkpoint could not be written: {error}. {older}. Make room, then go on from there."
        )

    def _record(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def _as_json(value: Any) -> Any:
    """The same without NaN and infinity, for which JSON has no words: ``{"float": "nan"}``."""
    if isinstance(value, dict):
        return {key: _as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    return {"float": str(value)} if isinstance(value, float) and not isfinite(value) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in ("nan", "inf", "-inf"):
            return float(value["float"])
        return {key: _from_json(one) for key, one in value.items()}
    return [_from_json(one) for one in value] if isinstance(value, list) else value
