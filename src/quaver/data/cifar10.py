"""CIFAR-10 (Krizhevsky, 2009) in the two layouts it is published in: binary records, and Python pickles.

The pickles are read so that nothing in them is run (`quaver.data.pickled`).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.data.dataset import MemoryImages
from quaver.data.pickled import PickleError, read_table
from quaver.errors import DataError
from quaver.preprocessing import Preprocessing
from quaver.reading import read_bytes

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES, PIXELS = 10, 3 * 32 * 32
LARGEST = 1 << 30  # bytes of a file; a batch of 10,000 images has 31 MB
TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
FILES = {"train": TRAINING, "val": ("test_batch",)}
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def cifar10(data_dir: Path, split: str, *, image_size: int | None, augment: bool, seed: int) -> MemoryImages:
    """The 50,000 training or 10,000 test images, of 32 pixels unless they are to be scaled."""
    suffix, folder = _find(data_dir, split)
    read = _read_binary if suffix == ".bin" else _read_python
    parts = [read(folder / f"{name}{suffix}") for name in FILES[split]]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    mean, std = ([255 * value for value in values] for values in (MEAN, STD))
    options: dict[str, Any] = {"image_size": image_size, "augment": augment, "seed": seed}
    data = MemoryImages(images, labels, classes=CLASSES, mean=mean, std=std, flip=True, **options)
    data.preprocessing = Preprocessing(data.image_shape[1:], MEAN, STD, labels=NAMES)
    return data


def _find(data_dir: Path, split: str) -> tuple[str, Path]:
    """Which layout is there, and where."""
    places = [(".bin", data_dir / BINARY), ("", data_dir / PYTHON), (".bin", data_dir), ("", data_dir)]
    for suffix, folder in places:
        if (folder / f"{FILES[split][0]}{suffix}").is_file():
            missing = [f"{name}{suffix}" for name in FILES[split] if not (folder / f"{name}{suffix}").is_file()]
            if missing:
                raise DataError(f"{folder}: of CIFAR-10's {split} files, missing: {', '.join(missing)}.")
            return suffix, folder
    looked = ", ".join(str(folder / f"{FILES[split][0]}{suffix}") for suffix, folder in places)
    raise DataError(
        f"{data_dir}: CIFAR-10 was not found. Looked for {looked}. Unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz "
        "there, or name its folder with data_dir; nothing is downloaded."
    )


def _read_binary(path: Path) -> Part:
    """Records of a label byte and 3072 pixel bytes: 1024 red, 1024 green, 1024 blue."""
    content = np.frombuffer(_content(path), np.uint8)
    if not content.size or content.size % (1 + PIXELS):
        raise DataError(f"{path}: has {content.size} bytes, no multiple of the {1 + PIXELS} of an image. It was cut off.")
    records = content.reshape(-1, 1 + PIXELS)
    return _checked(path, records[:, 1:], records[:, 0])


def _read_python(path: Path) -> Part:
    """A pickled table with ``data``, a row of 3072 pixels per image, and ``labels``."""
    try:
        content = read_table(_content(path))
    except PickleError as error:
        raise DataError(f"{path}: cannot be read: {error}. It was cut off, or is no CIFAR-10 file.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: holds no CIFAR-10 data, but a {type(content).__name__}.")
    table = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in content.items()}
    if not isinstance(table.get("data"), np.ndarray) or not isinstance(table.get("labels"), list):
        raise DataError(f"{path}: holds no CIFAR-10 data: wanted 'data', an array, and 'labels', a list.")
    if not all(type(label) is int for label in table["labels"]):
        raise DataError(f"{path}: has a label that is no whole number.")
    return _checked(path, table["data"], np.array(table["labels"], np.int64))


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path, LARGEST)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from error


def _checked(path: Path, pixels: NDArray[Any], labels: NDArray[Any]) -> Part:
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), PIXELS):
        raise DataError(f"{path}: {len(labels)} labels and pixels of shape {pixels.shape}: wanted {PIXELS} bytes for each.")
    if not labels.size:
        raise DataError(f"{path}: has no images.")
    if labels.min() < 0 or labels.max() >= CLASSES:
        raise DataError(f"{path}: has a label outside 0..{CLASSES - 1}. Is it CIFAR-10, and not CIFAR-100?")
    return np.ascontiguousarray(pixels).reshape(-1, 3, 32, 32), labels.astype(np.int64)
