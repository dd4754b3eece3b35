"""Training on a screen: a bar with loss, accuracy, images per second and the time left, and the log lines above it."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from quaver.training.listener import Listener, Position, ProgressLine


class Screen(Listener):
    """Shows a run on a console; on one that is no terminal, the log lines alone.

    ``lines``: whether log lines are printed, in the form of the reference, or only the bar moves.
    """

    def __init__(self, console: Console, *, lines: bool = True) -> None:
        self.console, self.lines = console, lines
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
        )
        self.task: TaskID | None = None

    def __enter__(self) -> "Screen":
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.progress.stop()

    def started(self, phase: str, at: Position, steps: int) -> None:
        """A bar for the phase, as far as it has come."""
        self.task = self.progress.add_task(phase, total=steps, completed=at.step, figures="")

    def stepped(self, at: Position) -> None:
        """Move the bar."""
        if self.task is not None:
            self.progress.update(self.task, completed=at.step)

    def logged(self, line: ProgressLine) -> None:
        """A line in the form of the reference behind the phase's name, and the bar's own figures."""
        figures = line.figures
        if self.lines:
            self._print(f"{line.phase} {line.of_batch()}")
        if self.task is not None:
            shown = {"loss": f"{figures['loss']:.3f}"} | {k: f"{v:.1%}" for k, v in figures.items() if k == "acc_top1"}
            summary = "  ".join(f"{name} {value}" for name, value in shown.items())
            self.progress.update(self.task, figures=f"{summary}  {line.images_per_second:,.0f} images/s")

    def evaluated(self, line: ProgressLine) -> None:
        """The figures over the test set."""
        if self.lines:
            self._print(line.of_test_set())

    def notified(self, message: str) -> None:
        """A sentence."""
        self._print(message)

    def _print(self, message: str) -> None:
        self.console.print(message, markup=False)
