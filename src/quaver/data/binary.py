"""The binary data file: images and labels as the testers read them, in Python and in C++.

Little-endian throughout; nothing before, between or after::

    reference layout   int64 N; N x 3 x 224 x 224 float32; N int64 labels
    header layout      8 bytes QUAVERB1; int64 N, C, H, W, classes; N x C x H x W float32; N int64 labels

A file is memory-mapped, so that a set larger than memory can be read, and written image by image.
"""

import struct
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from quaver.errors import ConfigError, DataError
from quaver.files import Draft, is_stream

MAGIC = b"QUAVERB1"
REFERENCE_SHAPE, REFERENCE_CLASSES = (3, 224, 224), 1000
Layout = Literal["reference", "header"]
Batch = tuple[NDArray[np.float32], NDArray[np.int64]]

_COUNT = struct.Struct("<q")
_HEADER = struct.Struct("<8sqqqqq")
_NO_COUNT = 1 << 40  # of images: what the first bytes of any other kind of file come to
_WAY_OUT = "It was cut off or changed, or is no data file. quaver convert-data makes one."


@dataclass(frozen=True)
class BinaryData:
    """Images and labels in a file; only what is asked for is read."""

    path: Path
    layout: Layout
    images_nchw: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        _, channels, height, width = self.images_nchw.shape
        return channels, height, width

    @cached_property
    def highest_label(self) -> int:
        """The largest label there is."""
        return int(self.labels.max())

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Every image once, in order, with its label; the last batch may be short. Batches are copies in memory."""
        if batch_size < 1:
            raise ConfigError(f"batch_size {batch_size}: a batch has at least 1 image.")
        for first in range(0, len(self), batch_size):
            part = slice(first, first + batch_size)
            yield np.array(self.images_nchw[part], np.float32), np.array(self.labels[part], np.int64)


def load_binary(path: str | Path, *, reference_classes: int = REFERENCE_CLASSES, check_labels: bool = True) -> BinaryData:
    """Open a data file of either layout; one that is damaged or foreign is an error that says so.

    The reference layout does not say how many classes there are: ``reference_classes`` does. ``check_labels=False`` is for
    those who will not look at the labels.
    """
    path = Path(path)
    content = _mapped(path)
    size = len(content)
    layout: Layout = "header" if content[:8].tobytes() == MAGIC else "reference"
    if size < (shortest := _HEADER.size if layout == "header" else _COUNT.size):
        raise DataError(f"{path}: the file has {size} bytes, fewer than the {shortest} it must begin with. {_WAY_OUT}")
    if layout == "header":
        _, count, *shape, classes = _HEADER.unpack(content[: _HEADER.size].tobytes())
    else:
        (count,), shape, classes = _COUNT.unpack(content[: _COUNT.size].tobytes()), list(REFERENCE_SHAPE), reference_classes
    _refuse_misfits(path, layout, size, count, shape, classes)
    end = size - 8 * count
    images = content[_first_byte(layout) : end].view("<f4").reshape(count, *shape)
    labels = content[end:].view("<i8")
    if check_labels:
        _refuse_labels(path, labels, classes)
    return BinaryData(path, layout, images, labels, classes)


def _mapped(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file, none of them read yet."""
    try:
        if not path.is_file():
            fact = "this is a folder or a device, not a file" if path.exists() else "there is no such file"
            raise DataError(f"{path}: {fact}. quaver convert-data makes a data file from images and a list.")
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty. {_WAY_OUT}")
        return np.memmap(path, np.uint8, "r").view(np.ndarray)
    except (OSError, ValueError) as error:  # no permission; a file that shrinks meanwhile
        raise DataError(f"{path}: cannot be read: {error}.") from error


def _first_byte(layout: Layout) -> int:
    """Where the images begin."""
    return _HEADER.size if layout == "header" else _COUNT.size


def _refuse_misfits(path: Path, layout: Layout, size: int, count: int, shape: list[int], classes: int) -> None:
    """The numbers a file begins with must be possible, and must fit its length exactly."""
    names = ("images", "channels", "rows", "columns", "classes")
    for name, number in zip(names, (count, *shape, classes), strict=True):
        if number < 1:
            raise DataError(f"{path}: the file says that it has {number} {name}. {_WAY_OUT}")
    if layout == "reference" and count >= _NO_COUNT:
        raise DataError(f"{path}: begins neither with QUAVERB1 nor with a possible number of images. {_WAY_OUT}")
    channels, height, width = shape
    expected = _first_byte(layout) + count * (4 * channels * height * width + 8)
    if size != expected:
        raise DataError(
            f"{path}: {layout} layout: {count} images of {channels}x{height}x{width} and labels take {expected} bytes, "
            f"but the file has {size}, {abs(size - expected)} too {'few' if size < expected else 'many'}. {_WAY_OUT}"
        )


def _refuse_labels(path: Path, labels: NDArray[np.int64], classes: int) -> None:
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        first = int(wrong.argmax())
        raise DataError(
            f"{path}: image {first} (counted from 0) has label {labels[first]}, outside 0..{classes - 1}; so have "
            f"{int(wrong.sum()) - 1} more. {_WAY_OUT}"
        )


class BinaryWriter:
    """Write a data file image by image, in memory one at a time; it appears at ``path`` when the ``with`` block ends.

    An error in the block, or a crash, leaves what was at ``path`` before::

        with BinaryWriter("val.bin", image_shape=(3, 224, 224), classes=1000, layout="reference") as writer:
            writer.add(image_chw, label)
    """

    def __init__(self, path: str | Path, *, image_shape: tuple[int, int, int], classes: int, layout: Layout) -> None:
        if min(*image_shape, classes) < 1:
            raise DataError(f"{path}: images of {image_shape} in {classes} classes: every number must be at least 1.")
        if layout == "reference" and (image_shape != REFERENCE_SHAPE or classes > REFERENCE_CLASSES):
            raise DataError(
                f"{path}: the reference layout holds images of 3x224x224 in at most {REFERENCE_CLASSES} classes, not "
                f"{'x'.join(map(str, image_shape))} in {classes}. Use the header layout."
            )
        self.path, self.image_shape, self.classes, self.layout = Path(path), image_shape, classes, layout
        self.labels = array("q")
        self._draft = Draft(self.path)

    def __len__(self) -> int:
        return len(self.labels)

    def __enter__(self) -> "BinaryWriter":
        if is_stream(self.path):
            raise DataError(f"{self.path}: this is a device or a pipe. Name a file.")
        with self._disk_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self._draft.__enter__()
        return self

    def add(self, image_chw: NDArray[np.float32], label: int) -> None:
        """Append an image and its label."""
        if image_chw.shape != self.image_shape:
            raise DataError(f"{self.path}: image {len(self)} has shape {image_chw.shape}, not {self.image_shape}.")
        if not 0 <= label < self.classes:
            raise DataError(f"{self.path}: image {len(self)} has label {label}, outside 0..{self.classes - 1}.")
        with self._disk_errors():
            if not self.labels:
                self._file.write(self._head())
            self._file.write(np.ascontiguousarray(image_chw, "<f4").data)
        self.labels.append(label)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._draft.__exit__(kind, error, trace)
            return
        with self._disk_errors(), ExitStack() as stack:
            stack.push(self._draft)
            self._finish()

    def _finish(self) -> None:
        if not self.labels:
            raise DataError(f"{self.path}: no image was given to write. What was there is untouched.")
        self._file.write(np.asarray(self.labels, "<i8").data)
        self._file.seek(0)
        self._file.write(self._head())  # again: how many images there are is known only now

    def _head(self) -> bytes:
        if self.layout == "reference":
            return _COUNT.pack(len(self))
        return _HEADER.pack(MAGIC, len(self), *self.image_shape, self.classes)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Turn an error of the disk into one of ours."""
        try:
            yield
        except BlockingIOError as error:
            raise DataError(f"{self.path}: another process is writing this file. Wait for it, or name another.") from error
        except OSError as error:
            raise DataError(f"{self.path}: could not be written: {error}. What was there is untouched.") from error
