"""The images that a command looks at: of a data file, or of a data set that ``quaver quantize`` takes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quaver.checking import check, nearest
from quaver.cli.flags import as_in_a_recipe
from quaver.config.options import rules_of
from quaver.config.recipe import Recipe
from quaver.errors import ConfigError, DataError

if TYPE_CHECKING:
    from quaver.image_input import ImageInput
    from quaver.program import Program


class Split(StrEnum):
    """Which half of a data set."""

    TRAIN = "train"
    VAL = "val"


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was asked for, with the flags that ask for it. ``data`` is a data file, a data set's name or its folder;
    ``dataset`` and ``data_dir`` say the last two apart, as in ``quaver quantize``.
    """

    data: Annotated[
        str | None,
        typer.Argument(
            help="Binary data file (quaver convert-data), or a data set's folder or name. Or give --dataset and --data_dir."
        ),
    ] = None
    dataset: Annotated[str, as_in_a_recipe("dataset")] = "auto"
    data_dir: Annotated[str, as_in_a_recipe("data_dir")] = ""
    split: Annotated[Split, typer.Option(help="Which images of a data set.", rich_help_panel="Data")] = Split.VAL
    batch_size: Annotated[int, typer.Option(help="Images per batch.", min=1, rich_help_panel="Data")] = 50
    batch_num: Annotated[int, typer.Option(help="Batches to look at; 0: all.", min=0, rich_help_panel="Data")] = 0
    image_shape: str = ""
    workers: int = 0
    shuffle: bool = False


@dataclass(frozen=True)
class Images:
    """Images with their labels, or alone, in batches; how many batches; what an image is like, and how many classes."""

    batches: Iterator[Any]
    count: int
    image_shape: tuple[int, int, int]
    classes: int


def open_batches(source: Source, image_size: int | None) -> Images:
    """What the source says; images are of ``image_size`` unless it says otherwise."""
    if source.data is not None and Path(source.data).is_file():
        if (source.dataset, source.data_dir) != ("auto", ""):
            raise ConfigError(
                f"{source.data}: a data file was given, and --dataset or --data_dir as well. Give one of them."
            )
        import torch

        from quaver.data.binary import load_binary

        file = load_binary(source.data)
        pairs = (tuple(map(torch.from_numpy, pair)) for pair in file.batches(source.batch_size))
        images = Images(pairs, -(-len(file) // source.batch_size), file.image_shape, file.classes)
    else:
        images = _of_data_set(_named(source), image_size)
    if not source.batch_num:
        return images
    count = min(images.count, source.batch_num)
    return replace(images, batches=islice(images.batches, count), count=count)


def as_taken(images: Images, image: "ImageInput | None") -> Images:
    """Images for a file that takes bytes: those that the prepared ones came of."""
    if image is None:
        return images

    def taken(batch: Any) -> Any:
        pair = isinstance(batch, tuple | list)
        as_bytes = image.images_of((batch[0] if pair else batch).numpy())
        return (as_bytes, *batch[1:]) if pair else as_bytes

    return replace(images, batches=map(taken, images.batches))


def image_size_of(program: "Program") -> int | None:
    """Height and width of the images that a program was captured for, if it takes square ones."""
    shapes = [leaf.shape for leaf in program.signature.tensors]
    square = len(shapes[0]) == 4 and shapes[0][2] == shapes[0][3]
    return shapes[0][2] if square else None


def _named(source: Source) -> Source:
    """The source with the data set that ``data`` stands for."""
    if source.data is None:
        return source
    from quaver.data.by_name import NAMES

    if source.dataset != "auto":
        raise ConfigError(f"{source.data!r} and --dataset {source.dataset}: both name the data. Give one of them.")
    if source.data in NAMES:
        return replace(source, data=None, dataset=source.data)
    if not Path(source.data).is_dir():
        raise DataError(
            f"{source.data}: there is no such file or folder, and no data set of this name. Known: {', '.join(NAMES)}."
            f"{nearest(source.data, NAMES)}"
        )
    if source.data_dir:
        raise ConfigError(f"{source.data!r} and --data_dir {source.data_dir}: both name a folder. Give one of them.")
    return replace(source, data=None, data_dir=source.data)


def _of_data_set(source: Source, image_size: int | None) -> Images:
    from quaver.data import Loader, open_dataset
    from quaver.experiment.recipe_checks import data_problems, dataset_name

    recipe = Recipe(dataset=source.dataset, data_dir=source.data_dir, image_shape=source.image_shape)
    check("command line", {"image_shape": source.image_shape}, {"image_shape": rules_of(Recipe)["image_shape"]})
    problems = data_problems(recipe)
    if problems:
        raise ConfigError("\n".join(problems))
    name = dataset_name(recipe)
    wanted = recipe.image_size or image_size
    data = open_dataset(name, source.split, data_dir=source.data_dir or None, image_size=wanted)
    loader = Loader(data, source.batch_size, shuffle=source.shuffle, workers=source.workers)
    batches: Iterator[Any] = loader.epoch(0)
    if name == "voc":  # boxes are no labels
        batches = (images for images, _ in batches)
    return Images(batches, len(loader), data.image_shape, data.classes)
