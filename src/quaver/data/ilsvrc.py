"""ILSVRC2012, or any set of images with lists: ``train/``, ``val/``, ``train_list.txt`` and ``val_list.txt``."""

import os
from pathlib import Path

from quaver.data.dataset import FileImages
from quaver.data.image_list import ListedImage, read_image_list
from quaver.errors import DataError

MOST_CLASSES = 100_000  # a label beyond this is a mistake in the list


def ilsvrc(data_dir: Path, split: str, *, image_size: int, augment: bool, seed: int) -> FileImages:
    """The images of a list; there are as many classes as the highest label of either list says."""
    lists = {name: data_dir / f"{name}_list.txt" for name in ("train", "val")}
    if not lists[split].is_file():
        raise DataError(
            f"{lists[split]}: there is no such list. ILSVRC2012 is a folder with train/, val/, train_list.txt and "
            "val_list.txt, with a path and a label per line; name it with data_dir. Nothing is downloaded."
        )
    listed = {name: read_image_list(path, MOST_CLASSES) for name, path in lists.items() if path.is_file()}
    images = listed[split]
    folder = _folder(data_dir, split, images[0])
    return FileImages(
        [folder / image.path for image in images],
        [image.label for image in images],
        classes=1 + max(image.label for part in listed.values() for image in part),
        image_size=image_size,
        augment=augment,
        seed=seed,
    )


def _folder(data_dir: Path, split: str, first: ListedImage) -> Path:
    """What the paths of a list start from: the folder of the list, or the one of the images."""
    places = [data_dir, data_dir / split]
    for folder in places:
        if os.path.isfile(folder / first.path):
            return folder
    looked = " and ".join(str(folder / first.path) for folder in places)
    raise DataError(
        f"{data_dir / f'{split}_list.txt'}: line {first.line}: the image is not there. Looked for {looked}. Paths are "
        "relative to the list's folder."
    )
