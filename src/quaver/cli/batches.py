"""The images that a command looks at: of a data file, or of a data set that ``quaver quantize`` takes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from quaver.config.check import check, nearest
from quaver.config.options import rules_of
from quaver.config.recipe import Recipe
from quaver.data import Loader, open_dataset
from quaver.data.binary import load_binary
from quaver.data.opening import NAMES
from quaver.errors import ConfigError, DataError
from quaver.experiment.plausible import dataset_name, problems_of_data


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was asked for. ``data`` is a data file, a data set's name or its folder; ``dataset`` and ``data_dir`` say the
    last two apart, as in ``quaver quantize``.
    """

    data: str | None = None
    dataset: str = "auto"
    data_dir: str = ""
    split: str = "val"
    image_shape: str = ""
    batch_size: int = 50
    batch_num: int = 0
    workers: int = 0


def open_batches(source: Source, image_size: int | None) -> tuple[Iterator[Any], int]:
    """The batches, and how many there are; images are of ``image_size`` unless the source says otherwise."""
    if source.data is not None and Path(source.data).is_file():
        if (source.dataset, source.data_dir) != ("auto", ""):
            raise ConfigError(
                f"{source.data}: a data file was given, and --dataset or --data_dir as well. Give one of them."
            )
        file = load_binary(source.data)
        pairs: Iterator[Any] = (tuple(map(torch.from_numpy, pair)) for pair in file.batches(source.batch_size))
        count = -(-len(file) // source.batch_size)
    else:
        pairs, count = _of_data_set(_named(source), image_size)
    if not source.batch_num:
        return pairs, count
    count = min(count, source.batch_num)
    return (pair for _, pair in zip(range(count), pairs, strict=False)), count


def _named(source: Source) -> Source:
    """The source with the data set that ``data`` stands for."""
    if source.data is None:
        return source
    if source.dataset != "auto":
        raise ConfigError(f"{source.data!r} and --dataset {source.dataset}: both name the data. Give one of them.")
    if source.data in NAMES:
        return Source(**vars(source) | {"data": None, "dataset": source.data})
    if not Path(source.data).is_dir():
        raise DataError(
            f"{source.data}: there is no such file or folder, and no data set of this name. Known: {', '.join(NAMES)}."
            f"{nearest(source.data, NAMES)}"
        )
    if source.data_dir:
        raise ConfigError(f"{source.data!r} and --data_dir {source.data_dir}: both name a folder. Give one of them.")
    return Source(**vars(source) | {"data": None, "data_dir": source.data})


def _of_data_set(source: Source, image_size: int | None) -> tuple[Iterator[Any], int]:
    recipe = Recipe(dataset=source.dataset, data_dir=source.data_dir, image_shape=source.image_shape)
    check("analyze", {"image_shape": source.image_shape}, {"image_shape": rules_of(Recipe)["image_shape"]})
    problems = problems_of_data(recipe)
    if problems:
        raise ConfigError("\n".join(problems))
    name = dataset_name(recipe)
    wanted = recipe.image_size or image_size
    images = open_dataset(name, source.split, data_dir=source.data_dir or None, image_size=wanted)
    loader = Loader(images, source.batch_size, shuffle=False, workers=source.workers)
    batches: Iterator[Any] = loader.epoch(0)
    return ((images for images, _ in batches) if name == "voc" else batches), len(loader)  # boxes are no labels
