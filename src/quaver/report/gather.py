"""The records of a run, from the files of its folder; what is not there is named, with the command that makes it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from quaver.analysis import Analysis
from quaver.engines import DEFAULT, suffixes
from quaver.errors import QuaverError, StorageError
from quaver.experiment.lock import at_work
from quaver.program.outline import Outline, outline
from quaver.program.storage import JSON_NAME
from quaver.reading import parse_json, read_text
from quaver.runtime.artefact import provenance, provenance_file

Record = dict[str, Any]
T = TypeVar("T")

BENCH: Record = {"latencies": {}, "footprints": {}, "profiles": {"layers": {}, "findings": {}}}
"""The lists of records in what quaver bench writes."""

PROGRAMS = ("int8", "float", "mobile")
"""Folders with a program, the one to show first."""


@dataclass
class Run:
    """What a folder says about a run. Empty records were not there; ``troubles`` are files that could not be read.

    ``name`` is what the run is called: the folder's name, unless another is given. ``at_work`` is the process that has
    not finished it yet, in words.
    """

    folder: Path
    report: Record = field(default_factory=dict)
    metrics: list[Record] = field(default_factory=list)
    verify: Record = field(default_factory=dict)
    bench: Record = field(default_factory=dict)
    origins: dict[str, Record] = field(default_factory=dict)
    analysis: Analysis | None = None
    program: Outline | None = None
    program_folder: str = ""
    troubles: list[str] = field(default_factory=list)
    name: str = ""
    at_work: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.folder.resolve().name

    @contextmanager
    def troubled_by(self, command: str) -> Iterator[None]:
        """While a command's record is looked through: one that is not as it was written is a trouble, and passed over."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            trouble = f"what quaver {command} says is not as it was written: {type(error).__name__} {error}."
            self.troubles.append(f"{self.folder}: {trouble}")

    @property
    def missing(self) -> list[tuple[str, str]]:
        """What is not there, and the command that makes it."""
        folder = self.folder
        model, program = DEFAULT.file_in(folder), folder / (self.program_folder or "int8")
        run = f"the run itself, which is not finished: {self.at_work} is at work on it" if self.at_work else ""
        options = [
            (self.report, "Accuracy and size", run or f"quaver quantize --model_save_dir {folder}"),
            (self.metrics, "Training curves", run or f"quaver quantize --model_save_dir {folder}"),
            (self.program, "Layers and network", f"quaver convert PROGRAM {folder}"),
            (self.analysis, "Errors and histograms", f"quaver analyze {program} DATA --json {folder / 'analysis.json'}"),
            (
                self.verify or "agreement" in self.report,
                "Simulated against deployed",
                f"quaver verify {program} {model} DATA --json {folder / 'verify.json'}",
            ),
            (
                self.bench,
                "Executed precision, time of each layer, memory",
                f"quaver bench {model} --float FLOAT_MODEL --layers --json {folder / 'bench.json'}",
            ),
        ]
        return [(what, command) for there, what, command in options if not there]


def told_apart(runs: list[Run]) -> list[Run]:
    """The same runs under names that differ: with as many of the folders above as that takes."""
    paths = [run.folder.resolve().parts for run in runs]
    for length in range(1, max(map(len, paths))):
        names = [str(Path(*parts[-length:])) for parts in paths]
        if len(set(names)) == len(set(paths)):
            return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
    return runs


def is_number(value: Any) -> bool:
    """Whether a record's value is a finite number that a float can hold.

    >>> is_number(-0.5), is_number(float("nan")), is_number(True), is_number("0.5")
    (True, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_figure(value: Any) -> bool:
    """Whether a record's value is a number that can be measured: finite, and not below zero."""
    return is_number(value) and value >= 0


def measured(value: Any) -> Any:
    """A figure of a record as it is; anything else is a ValueError."""
    if not is_figure(value):
        raise ValueError(f"{value!r} is no figure")
    return value


def gather(folder: str | Path) -> Run:
    """Read all that is there; a file that is damaged is left out and named in ``troubles``."""
    folder = Path(folder)
    if folder.is_file():
        raise StorageError(f"{folder}: this is a file. A report is on the folder of a run: {folder.parent}, perhaps.")
    if not folder.is_dir():
        raise StorageError(f"{folder}: there is no such folder. quaver demo or quaver quantize makes one to report on.")
    run = Run(folder, at_work=at_work(folder))
    run.report = _read(run, folder / "report.json", _object) or {}
    run.metrics = _read(run, folder / "metrics.jsonl", _lines) or []
    run.analysis = _read(run, folder / "analysis.json", Analysis.load)
    run.verify = _first(run, "verify*.json", "agreement", {"layers": {}})
    run.bench = _first(run, "bench*.json", "latencies", BENCH)
    for name in PROGRAMS:
        if run.program is None and (folder / name / JSON_NAME).exists():
            run.program = _read(run, folder / name / JSON_NAME, lambda path: outline(path.parent))
            run.program_folder = name
    for name in ("int8", "mobile", "fp32"):
        for file in sorted((folder / name).glob("*")):
            if file.suffix in suffixes() and provenance_file(file).exists():
                run.origins[f"{name}/{file.name}"] = _read(run, file, provenance) or {}
    if not (run.report or run.metrics or run.analysis or run.verify or run.bench or run.program):
        if run.troubles:
            raise StorageError(f"{folder}: none of its files can be reported on. {' '.join(run.troubles)}")
        if run.at_work:
            raise StorageError(f"{folder}: {run.at_work} is at work on this run, and has nothing to report on yet.")
        programs = ", ".join(f"{name}/{JSON_NAME}" for name in PROGRAMS)
        raise StorageError(
            f"{folder}: holds none of the files of a run, which are report.json, metrics.jsonl, analysis.json, "
            f"verify*.json, bench*.json and a program ({programs}). quaver demo or quaver quantize makes such a folder."
        )
    return run


def _first(run: Run, pattern: str, key: str, outline: Record) -> Record:
    """The first file of this pattern that has the key."""
    for path in sorted(run.folder.glob(pattern)):
        content = _read(run, path, _object)
        if content is None or key not in content:
            continue
        if _fits(content, outline):
            return content
        run.troubles.append(f"{path}: is not as the command wrote it. Run the command again.")
    return {}


def _fits(content: Record, outline: Record) -> bool:
    """Whether what should be a list of records is one, all the way down."""
    return all(
        isinstance(content.get(key, []), list)
        and all(isinstance(item, dict) and _fits(item, inner) for item in content.get(key, []))
        for key, inner in outline.items()
    )


def _read(run: Run, path: Path, reader: Callable[[Path], T]) -> T | None:
    if not path.exists():
        return None
    try:
        return reader(path)
    except QuaverError as error:
        run.troubles.append(str(error))
        return None


def _object(path: Path) -> Record:
    try:
        content = parse_json(read_text(path))
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise StorageError(f"{path}: is not a record of figures.")
    return content


def _lines(path: Path) -> list[Record]:
    """The records of a file with one per line; a last line that was cut off is passed over."""
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {error}.") from error
    records = []
    for index, line in enumerate(lines):
        try:
            record = parse_json(line)
        except ValueError as error:
            if index == len(lines) - 1:
                break
            raise StorageError(f"{path}: line {index + 1} cannot be read: {error}.") from error
        if isinstance(record, dict):
            records.append(record)
    return records
