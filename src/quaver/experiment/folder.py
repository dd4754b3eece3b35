"""The folder of a run: where everything is, and how a run begins in it or goes on."""

import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from quaver.errors import ConfigError, StorageError
from quaver.files import write_atomically
from quaver.training.checkpoint import Checkpoints, Say


@dataclass(frozen=True)
class RunFolder:
    """``checkpoints/``, ``metrics.jsonl``, ``fp32.safetensors``, the artefacts, and last of all ``report.json``."""

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
    def fp32(self) -> Path:
        """The float weights that quantization starts from."""
        return self.path / "fp32.safetensors"

    @property
    def analysis(self) -> Path:
        """What ranges started from, if the run looked at its data first."""
        return self.path / "analysis.json"

    @property
    def metrics(self) -> Path:
        """How training went, a line of JSON for each log line and evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def report(self) -> Path:
        """The figures at the end; a run that has it is finished."""
        return self.path / "report.json"

    def begin(self, say: Say) -> None:
        """Make room for a new run. A finished one is replaced; one that can go on is not thrown away."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: this is a file. Name a folder, or one that does not exist yet.")
        if self.checkpoints.names() and not self.report.exists():
            raise ConfigError(
                f"{self.path}: a run was stopped here and can go on: add --checkpoint {shlex.quote(str(self.path))}. To "
                "start anew, name another folder or remove this one."
            )
        if self.report.exists():
            say(f"{self.path} holds a finished run, which this one replaces.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.checkpoints.folder, ignore_errors=True)
            for stale in (self.metrics, self.fp32, self.analysis, self.report):
                stale.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written to: {error}.") from error

    def sweep(self) -> None:
        """Remove the drafts that a killed run left among its artefacts."""
        for draft in [*self.path.glob("int8/.*"), *self.path.glob("mobile/.*"), *self.path.glob("float/.*")]:
            shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink(missing_ok=True)

    def write_weights(self, weights: dict[str, Tensor]) -> None:
        """The float weights, in one step."""
        import safetensors.torch

        own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
        self._write(self.fp32, safetensors.torch.save(own))

    def write_report(self, figures: dict[str, Any]) -> None:
        """The figures, in one step."""
        self._write(self.report, (json.dumps(figures, indent=2) + "\n").encode())

    def _write(self, path: Path, content: bytes) -> None:
        try:
            write_atomically(path, content)
        except OSError as error:
            raise StorageError(f"{path}: could not be written: {error}. Make room, then go on.") from error
