"""The folder of a run: where everything is, and how a run begins in it or goes on."""

import json
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from quaver.config.load import Command
from quaver.config.recipe import FROM_DATA, Recipe
from quaver.errors import ConfigError, StorageError
from quaver.experiment.archive import EVERYTHING, RESULTS, set_aside
from quaver.files import write_atomically, writing
from quaver.formats import Format
from quaver.records import replace_non_finite
from quaver.training.checkpoint import Checkpoints, Say
from quaver.training.listener import MAKE_ROOM

FORMAT = Format("quaver.run", 1, "the start of a run", "Quaver", "A run writes it.", "Start again without --checkpoint.")
WEIGHTS = "fp32.safetensors"


def weights_at(place: str) -> Path:
    """The file that a ``--pretrained_fp32_model`` means: itself, or the one in the folder of a run."""
    path = Path(place)
    return path / WEIGHTS if path.is_dir() else path


def _table_at(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class RunFolder:
    """``run.json`` first, then checkpoints, metrics, weights, the artefacts, and last of all ``report.json``."""

    path: Path

    @classmethod
    def of(cls, checkpoint: str) -> "RunFolder":
        """The folder that a ``--checkpoint`` means: a run's, or the one of its checkpoints."""
        path = Path(checkpoint)
        return cls(path.parent if path.name == "checkpoints" else path)

    @property
    def checkpoints(self) -> Checkpoints:
        """The run's state, as it was lately."""
        return Checkpoints(self.path / "checkpoints")

    @property
    def started(self) -> Path:
        """What the run was started with, for one that has no checkpoint yet."""
        return self.path / "run.json"

    @property
    def fp32(self) -> Path:
        """The float weights that quantization starts from."""
        return self.path / WEIGHTS

    @property
    def analysis(self) -> Path:
        """What ranges and clips start from, if the data was looked at first."""
        return self.path / "analysis.json"

    @property
    def metrics(self) -> Path:
        """How training went, a line of JSON for each log line and evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def log(self) -> Path:
        """The same and all that was said, with the time, for people."""
        return self.path / "train.log"

    @property
    def report(self) -> Path:
        """The figures at the end; a run that has it is finished."""
        return self.path / "report.json"

    def refuse_file(self) -> None:
        """An error if there is a file where the folder should be."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: this is a file. Name a folder, or one that does not exist yet.")

    def ended_with_analysis(self) -> bool:
        """Whether the last run here was an analysis, and came to its end."""
        return self.analysis.is_file() and _table_at(self._recipe_before(), "quantize").get("analysis") is True

    def was_analysed(self, recipe: Recipe) -> bool:
        """Whether there is an analysis of this recipe's model, that the last run here made or started from."""
        before = self._recipe_before()
        same = [before.get("model"), before.get("model_options")] == [recipe.model, recipe.model_options]
        started_from = self.analysis.is_file() and _table_at(before, "quantize").get("init_from") == str(self.analysis)
        return same and (started_from or self.ended_with_analysis())

    def _recipe_before(self) -> dict[str, Any]:
        """The recipe of the last run here, as it was written; empty if it cannot be read."""
        try:
            return _table_at(FORMAT.unsealed(self.started), "recipe")
        except StorageError:
            return {}

    def begin(self, command: Command, recipe: Recipe, say: Say) -> None:
        """Make room for a new run. What was made here before is set aside; a run that can go on is not touched."""
        finished = self.report.exists()
        if self.checkpoints.names() and not finished:
            raise ConfigError(
                f"{self.path}: a run was stopped here and can go on: add --checkpoint {shlex.quote(str(self.path))}. To "
                "start anew, name another folder or remove this one."
            )
        weights, analysis = recipe.pretrained_fp32_model, recipe.quantize.init_from
        named = ([weights_at(weights)] if weights else []) + ([Path(analysis)] if analysis not in ("", FROM_DATA) else [])
        held = "a finished run, which this one replaces" if finished else "files of an earlier run"
        self._set_aside(EVERYTHING, f"{self.path} holds {held}", say, named)
        self._write(self.started, FORMAT.sealed({"command": command, "recipe": recipe.record()}))

    def begin_again(self, say: Say) -> None:
        """Start once more a run that has no checkpoint; metrics are there only if its checkpoints were taken away."""
        self._set_aside((self.metrics.name,), f"{self.path} holds metrics of a run without its checkpoints", say)

    def reopen(self, say: Say) -> None:
        """Let a finished run go on to another result: the one it had is set aside, with a copy of the weights."""
        if self.report.exists():
            what = f"{self.path} holds a finished run, which goes on to another result"
            self._set_aside((WEIGHTS, *RESULTS), what, say, [self.fp32])

    def _set_aside(self, patterns: tuple[str, ...], what: str, say: Say, named: Collection[Path] = ()) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            aside = set_aside(self.path, patterns, named)
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written to: {error}.") from error
        if aside is not None:
            say(f"{what}. What was there is kept in {aside}.")

    def write_weights(self, weights: dict[str, Tensor]) -> None:
        """The float weights, in one step."""
        import safetensors.torch

        own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
        self._write(self.fp32, safetensors.torch.save(own))

    def write_report(self, figures: dict[str, Any]) -> None:
        """The figures, in one step."""
        self._write(self.report, (json.dumps(replace_non_finite(figures, str), indent=2) + "\n").encode())

    def _write(self, path: Path, content: bytes) -> None:
        with writing(path, MAKE_ROOM):
            write_atomically(path, content)
