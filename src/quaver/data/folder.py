"""Images in folders, one per class: ``train/cat/1.jpg``, ``val/dog/2.png``; or just ``cat/1.jpg``, ``dog/2.png``."""

from hashlib import blake2b
from pathlib import Path

from quaver.data.dataset import FileImages
from quaver.errors import DataError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


HELD_OUT = 5
"""One image of so many is for testing, where nobody has said which."""


def folder(data_dir: Path, split: str, *, image_size: int, augment: bool, seed: int) -> FileImages:
    """The images under ``train/`` or ``val/``; classes are the folders of ``train/`` in the order of their names.

    Without these two the classes lie in ``data_dir`` itself, and a fifth of each is held out for ``val``, drawn by the names
    of the files: the same ones in every command, whatever its seed. Files without an image's ending are not looked at.
    """
    if not is_split(data_dir):
        return _drawn(data_dir, split, image_size=image_size, augment=augment, seed=seed)
    classes = [path.name for path in _subfolders(data_dir / "train", data_dir)]
    names = classes if split == "train" else [path.name for path in _subfolders(data_dir / split, data_dir)]
    unknown = sorted(set(names) - set(classes))
    if unknown:
        raise DataError(f"{data_dir / split}: has classes that train/ has not: {', '.join(unknown)}.")
    paths, labels = [], []
    for name in names:
        images = _images(data_dir / split / name)
        paths += images
        labels += [classes.index(name)] * len(images)
    return FileImages(paths, labels, classes=classes, image_size=image_size, augment=augment, seed=seed)


def is_split(data_dir: Path) -> bool:
    """Whether ``train/`` or ``val/`` is there; or nothing that could be split, of which an error is to name these two."""
    return any((data_dir / split).is_dir() for split in ("train", "val")) or not any(
        path.suffix.lower() in SUFFIXES for path in data_dir.glob("*/*")
    )


def _drawn(data_dir: Path, split: str, *, image_size: int, augment: bool, seed: int) -> FileImages:
    paths, labels = [], []
    places = _subfolders(data_dir, data_dir)
    for label, place in enumerate(places):
        drawn = sorted(_images(place), key=lambda path: _lot(path.relative_to(data_dir)))
        held_out = max(len(drawn) // HELD_OUT, 1)
        if len(drawn) < 2:
            raise DataError(f"{place}: there is one image in it, and a class needs one to learn from and one to test.")
        chosen = sorted(drawn[held_out:] if split == "train" else drawn[:held_out])
        paths += chosen
        labels += [label] * len(chosen)
    names = [place.name for place in places]
    return FileImages(paths, labels, classes=names, image_size=image_size, augment=augment, seed=seed)


def _lot(path: Path) -> bytes:
    return blake2b(path.as_posix().encode(errors="surrogateescape"), digest_size=8).digest()


def _subfolders(place: Path, data_dir: Path) -> list[Path]:
    folders = sorted(path for path in place.iterdir() if path.is_dir() and not _is_hidden(path)) if place.is_dir() else []
    if not folders:
        raise DataError(
            f"{place}: {'has no folders in it' if place.is_dir() else 'there is no such folder'}. A folder data set has "
            f"{data_dir / 'train'}/CLASS/IMAGE and {data_dir / 'val'}/CLASS/IMAGE, or {data_dir}/CLASS/IMAGE; name it with "
            "data_dir."
        )
    return folders


def _images(place: Path) -> list[Path]:
    images = sorted(path for path in place.rglob("*") if path.suffix.lower() in SUFFIXES and not _is_hidden(path))
    if not images:
        raise DataError(f"{place}: there is no image in it. Endings are {', '.join(sorted(SUFFIXES))}.")
    return images


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".")
