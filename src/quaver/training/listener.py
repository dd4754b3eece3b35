"""Where the progress of training goes: a screen, a file of metrics, a log, TensorBoard."""

import json
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from quaver.errors import ConfigError, StorageError
from quaver.files import writing
from quaver.records import replace_non_finite

MAKE_ROOM = "Make room, then go on."


@dataclass(frozen=True)
class Position:
    """The next batch to train on; ``step`` counts batches over all epochs."""

    epoch: int = 0
    batch: int = 0
    step: int = 0


@dataclass(frozen=True)
class ProgressLine:
    """What is said of a moment in training: the phase's name, where it is, figures by name, and how fast it went.

    ``seconds_left``: till the phase is over, at the speed it has had so far.
    """

    phase: str
    at: Position
    figures: dict[str, float]
    seconds_per_batch: float = 0.0
    images_per_second: float = 0.0
    seconds_left: float = 0.0

    def record(self) -> dict[str, Any]:
        """All of it but the speed, which differs from run to run: equal runs leave equal files."""
        return {"phase": self.phase, "epoch": self.at.epoch, "step": self.at.step, **self.figures}

    def of_batch(self) -> str:
        """The line as the reference prints it, and the time left: ``epoch[0]-batch[10] - loss: 1.60; … time: 1.57``."""
        times = f"time: {self.seconds_per_batch:.4f}; eta: {timedelta(seconds=round(self.seconds_left))}"
        return f"epoch[{self.at.epoch}]-batch[{self.at.batch}] - {self._figures_text('lr')}; {times}"

    def of_test_set(self) -> str:
        """The same for an evaluation."""
        return f"epoch[{self.at.epoch}] - {self.phase}, test set - {self._figures_text('images')}"

    def _figures_text(self, left_out: str) -> str:
        return "; ".join(f"{name}: {value:.4f}" for name, value in self.figures.items() if name != left_out)


class Listener:
    """Is told everything and does nothing; subclasses override what they need."""

    def started(self, phase: str, at: Position, steps: int) -> None:
        """Training begins, or goes on, at a position, till it has made so many steps."""

    def stepped(self, at: Position) -> None:
        """A step was done; called every time, so it must cost nothing."""

    def logged(self, line: ProgressLine) -> None:
        """Figures of a batch."""

    def evaluated(self, line: ProgressLine) -> None:
        """Figures over the test set after an epoch."""

    def notified(self, message: str) -> None:
        """Something a user should know."""

    def length(self) -> int:
        """The length of this listener's record; what is written after it may be cut off again."""
        return 0

    def truncate(self, length: int) -> None:
        """Forget what was written beyond a length: the run goes on from a checkpoint made there."""


class MetricsFile(Listener):
    """Every line as JSON, one per line of a file; no times, so that equal runs leave equal files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def logged(self, line: ProgressLine) -> None:
        """A line with the batch."""
        self._write(line.record() | {"batch": line.at.batch})

    def evaluated(self, line: ProgressLine) -> None:
        """A line under ``evaluation``."""
        self._write({"phase": line.phase, "epoch": line.at.epoch, "step": line.at.step, "evaluation": line.figures})

    def length(self) -> int:
        """The file's length."""
        return self.path.stat().st_size if self.path.exists() else 0

    def truncate(self, length: int) -> None:
        """The file as it was when it had this length."""
        with writing(self.path, MAKE_ROOM):
            if self.length() > length:
                os.truncate(self.path, length)

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(replace_non_finite(record, str))
        with writing(self.path, MAKE_ROOM), open(self.path, "ab") as file:
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())  # a checkpoint counts on it, so it must survive a crash as the checkpoint does


class LogFile(Listener):
    """What the screen shows, with date, time and level, as the reference's logs are; a run that goes on adds to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def started(self, phase: str, at: Position, steps: int) -> None:
        """Which phase the lines behind it are of: the reference's have no place for that."""
        self._write("INFO", f"{phase}: from step {at.step} to step {steps}")

    def logged(self, line: ProgressLine) -> None:
        """``2020-06-05 15:25:37,647-INFO: epoch[0]-batch[10] - loss: 1.60; …``."""
        self._write("INFO", line.of_batch())

    def evaluated(self, line: ProgressLine) -> None:
        """The figures over the test set."""
        self._write("INFO", line.of_test_set())

    def notified(self, message: str) -> None:
        """A sentence, or several lines."""
        self._write("WARNING" if message.startswith("warning:") else "INFO", message.removeprefix("warning: "))

    def _write(self, level: str, message: str) -> None:
        now = datetime.now()
        stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}-{level}: "
        with writing(self.path, MAKE_ROOM), open(self.path, "a", encoding="utf-8") as file:
            file.writelines(f"{stamp}{line}\n" for line in message.splitlines())


class TensorBoard(Listener):
    """TensorBoard event files, written by the ``tensorboard`` package."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                '--tensorboard: the package is not installed. pip install "quaver[tensorboard]", or leave the flag out: '
                "metrics.jsonl has the same figures."
            ) from error
        try:
            self.writer = SummaryWriter(folder)  # type: ignore[no-untyped-call]
        except (OSError, UnicodeEncodeError) as error:  # it knows names in UTF-8 only
            raise StorageError(f"{folder}: TensorBoard cannot write there: {error}. Leave --tensorboard out.") from error

    def logged(self, line: ProgressLine) -> None:
        """Figures and speed."""
        self._write(line, line.figures | {"images_per_second": line.images_per_second})

    def evaluated(self, line: ProgressLine) -> None:
        """Figures over the test set, under ``evaluation``."""
        self._write(line, {f"evaluation/{name}": value for name, value in line.figures.items()})
        self.writer.flush()  # type: ignore[no-untyped-call]

    def _write(self, line: ProgressLine, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(f"{line.phase}/{name}", value, line.at.step)  # type: ignore[no-untyped-call]
