"""Checkpoints: a run's state as a safetensors and a JSON file, whole or not there, the last two kept.

The JSON file is written last and names the tensors' file with its checksum: whenever a crash comes, a checkpoint that has
its JSON file is whole. Nothing is pickled.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from quaver.errors import StorageError
from quaver.formats import Format
from quaver.records import MisfitError, decoded, replace_non_finite
from quaver.stores import Store

FORMAT = Format("quaver.checkpoint", 1, "a checkpoint", "Quaver", if_missing="Training writes one.")
KEPT = 2
NAME = re.compile(r".+-\d{9}")  # a phase and its step
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

    @property
    def _store(self) -> Store:
        return Store(self.folder, FORMAT, "tensors")

    def names(self) -> list[str]:
        """Every finished checkpoint, oldest first; files in another format do not count."""
        paths = (path for path in self.folder.glob("*.json") if NAME.fullmatch(path.stem))
        return sorted(path.stem for path in paths if not FORMAT.is_foreign(path))

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and drop those before the last two. If that fails, the ones before are as they were."""
        import safetensors.torch  # at first use: training without a folder works without it

        own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
        content, record = safetensors.torch.save(own), replace_non_finite(checkpoint.record, _in_words)
        try:
            self._store.put(f"{checkpoint.name}.json", checkpoint.name, {"record": record}, content)
        except OSError as error:
            raise StorageError(self._not_written(checkpoint.name, error)) from error
        with suppress(OSError):  # the new checkpoint is in place; a leftover costs only its bytes
            for name in self.names()[:-KEPT]:
                self._store.remove(f"{name}.json")

    def newest(self, say: Say) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None where none was written; ``say`` hears of damaged ones."""
        damage = []
        for name in reversed(self.names()):
            try:
                checkpoint = self.read(name)
            except StorageError as error:
                damage.append(str(error))
                continue
            for sentence in damage:
                say(f"{sentence} Going on from the one before, {name}.")
            return checkpoint
        if damage:
            raise StorageError(" ".join(damage) + " There is no other: start again without --checkpoint.")
        return None

    def read(self, name: str) -> Checkpoint:
        """One checkpoint, whole, or an error that says what is wrong with it."""
        import safetensors.torch

        body, content = self._store.get(f"{name}.json")
        try:
            record = decoded(_Body, body).record
            return Checkpoint(name, safetensors.torch.load(content), _from_json(record))
        except (MisfitError, safetensors.SafetensorError, ValueError, KeyError) as error:
            raise StorageError(f"{self._record(name)}: the checkpoint is damaged: {error}.") from error

    def set_aside(self, after: str) -> None:
        """Put checkpoints newer than ``after`` out of the way: damaged ones, when a run goes on from the one before."""
        for name in self.names():
            if name > after:
                path = self._record(name)
                try:
                    path.replace(path.with_suffix(".damaged"))
                except OSError as error:
                    raise StorageError(f"{path}: is damaged, and cannot be set aside: {error}.") from error

    def _not_written(self, name: str, error: OSError) -> str:
        names = [other for other in self.names() if other != name]
        older = f"The checkpoint before, {names[-1]}, is intact" if names else "There is none before it"
        return (
            f"{self._record(name)}: the checkpoint could not be written: {error}. {older}. Make room, then go on from there."
        )

    def _record(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def _in_words(value: float) -> dict[str, str]:
    return {"float": str(value)}


def _from_json(value: Any) -> Any:
    """What was saved, with the numbers that `_in_words` wrote as they were."""
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in ("nan", "inf", "-inf"):
            return float(value["float"])
        return {key: _from_json(item) for key, item in value.items()}
    return [_from_json(item) for item in value] if isinstance(value, list) else value
