"""``data.open_dataset``: a data set by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from quaver.checking import boolean, check, one_of, whole
from quaver.data.cifar10 import cifar10
from quaver.data.dataset import ImageData
from quaver.data.digits import digits
from quaver.data.folder import folder
from quaver.data.ilsvrc import ilsvrc
from quaver.data.voc import voc

PLACES = {"cifar10": "data/cifar10", "ilsvrc": "data/ILSVRC2012", "folder": "data/images", "voc": "data/VOC"}
"""Where each is looked for unless ``data_dir`` says another place."""

OPENERS: dict[str, Callable[..., ImageData]] = {"cifar10": cifar10, "ilsvrc": ilsvrc, "folder": folder, "voc": voc}
SIZES = {"ilsvrc": 224, "folder": 224, "voc": 416}
NAMES = ("digits", *OPENERS)


def open_dataset(
    name: str,
    split: str,
    *,
    data_dir: str | Path | None = None,
    image_size: int | None = None,
    augment: bool = False,
    seed: int = 0,
) -> ImageData:
    """A data set: ``digits`` ships with the package; ``cifar10``, ``ilsvrc``, ``folder`` and ``voc`` are in ``data_dir``.

    ``split`` is ``train`` or ``val``. Nothing is downloaded: one that is not there says where it was looked for, and which
    layout it should have.

    >>> data = open_dataset("digits", "val")
    >>> len(data), data.classes, data.image_shape
    (359, 10, (3, 32, 32))
    """
    options = {"name": name, "split": split, "image_size": 32 if image_size is None else image_size, "augment": augment}
    rules = {"name": one_of(*NAMES), "split": one_of("train", "val"), "image_size": whole(1), "augment": boolean()}
    check("open_dataset", options, rules)
    shared: dict[str, Any] = {"augment": augment, "seed": seed}
    if name == "digits":
        return digits(split, image_size=image_size or 32, **shared)
    place = Path(PLACES[name] if data_dir is None else data_dir)
    return OPENERS[name](place, split, image_size=image_size or SIZES.get(name), **shared)
