"""Files of earlier runs in a folder: archived before a new run starts, so that no old figure stands beside a new one."""

import filecmp
import shutil
from collections.abc import Collection
from pathlib import Path

from quaver.errors import ConfigError

RESULTS = (
    "float",
    "int8",
    "mobile",
    "fp32",
    "verify*.json",
    "bench*.json",
    "report.html",
    "comparison.html",
    "report.json",
)
"""What is made of a trained model, and measured of it. The report is last: while it is there, the rest is not all gone."""

EVERYTHING = (
    "checkpoints",
    "run.json",
    "metrics.jsonl",
    "train.log",
    "fp32.safetensors",
    "analysis.json",
    "events",
    *RESULTS,
)
"""All that a run and the commands after it leave. Checkpoints are first: what is half set aside must not go on."""


def set_aside(folder: Path, patterns: tuple[str, ...], named: Collection[Path] = ()) -> Path | None:
    """Move what there is of ``patterns`` to ``previous/1`` (or 2, 3 …) and give that folder; None if there was nothing.

    Files that are ``named`` are needed where they are: they stay, and a copy goes along. A call that was cut off is
    finished by the next one.
    """
    named = {path.resolve() for path in named}
    paths = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if not _is_run(path)]
    _refuse_inside(paths, named)
    previous = folder / "previous"
    draft = previous / ".draft"
    moved = [path for path in paths if path.resolve() not in named]
    copied = [path for path in paths if path.resolve() in named and not _has_copy(path, previous)]
    if not draft.exists() and not copied and all(path.name == "run.json" for path in moved):  # a run that made nothing
        return None
    if any((draft / path.name).exists() for path in moved):  # cut off, and then something new was made
        _numbered(draft)
    draft.mkdir(parents=True, exist_ok=True)
    for path in copied:
        shutil.copy2(path, draft / path.name)
    for path in moved:
        path.replace(draft / path.name)
    return _numbered(draft)


def _numbered(draft: Path) -> Path:
    numbers = [int(path.name) for path in draft.parent.iterdir() if path.name.isdecimal()]
    return draft.rename(draft.parent / str(max(numbers, default=0) + 1))


def _is_run(path: Path) -> bool:
    """Whether this is a run's own folder: that of a float run may well be called ``float``."""
    return any((path / name).exists() for name in ("checkpoints", "run.json", "report.json"))


def _refuse_inside(paths: list[Path], named: Collection[Path]) -> None:
    for file in named:
        for path in paths:
            if path.resolve() in file.parents:
                raise ConfigError(
                    f"{file}: lies in {path}, which a run in {path.parent} writes anew. Copy it elsewhere, or name another "
                    "folder with --model_save_dir."
                )


def _has_copy(path: Path, previous: Path) -> bool:
    return any(filecmp.cmp(path, copy, shallow=False) for copy in previous.glob(f"*/{path.name}"))
