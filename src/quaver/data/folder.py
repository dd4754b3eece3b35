"""Images in folders, one per class: ``train/cat/1.jpg``, ``val/dog/2.png``."""

from pathlib import Path

from quaver.data.dataset import FileImages
from quaver.errors import DataError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


def folder(data_dir: Path, split: str, *, image_size: int, augment: bool, seed: int) -> FileImages:
    """The images under ``train/`` or ``val/``; classes are the folders of ``train/`` in the order of their names.

    Files without an image's ending are not looked at.
    """
    classes = [path.name for path in _subfolders(data_dir / "train", data_dir)]
    names = classes if split == "train" else [path.name for path in _subfolders(data_dir / split, data_dir)]
    unknown = sorted(set(names) - set(classes))
    if unknown:
        raise DataError(f"{data_dir / split}: has classes that train/ has not: {', '.join(unknown)}.")
    paths, labels = [], []
    for name in names:
        images = _images(data_dir / split / name)
        if not images:
            raise DataError(
                f"{data_dir / split / name}: there is no image in it. Endings are {', '.join(sorted(SUFFIXES))}."
            )
        paths += images
        labels += [classes.index(name)] * len(images)
    return FileImages(paths, labels, classes=len(classes), image_size=image_size, augment=augment, seed=seed)


def _subfolders(place: Path, data_dir: Path) -> list[Path]:
    folders = sorted(path for path in place.iterdir() if path.is_dir() and not _is_hidden(path)) if place.is_dir() else []
    if not folders:
        raise DataError(
            f"{place}: {'has no folders in it' if place.is_dir() else 'there is no such folder'}. A folder data set has "
            f"{data_dir / 'train'}/CLASS/IMAGE and {data_dir / 'val'}/CLASS/IMAGE; name it with data_dir."
        )
    return folders


def _images(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.suffix.lower() in SUFFIXES and not _is_hidden(path))


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".")
