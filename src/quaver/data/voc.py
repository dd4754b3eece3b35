"""Object detection data in the layout of PASCAL VOC: ``JPEGImages/``, ``Annotations/`` and ``ImageSets/Main/``."""

import os
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from quaver.checking import nearest
from quaver.data.augment import CROP_DRAWS, crop_box
from quaver.data.dataset import ImageData
from quaver.data.image_list import count_of, shortened
from quaver.data.images import MEAN, STD, normalized, read_pixels
from quaver.errors import DataError
from quaver.preprocessing import Preprocessing
from quaver.reading import read_bytes, read_text

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog", "horse"),
    *("motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
LISTS = {"train": ("train", "trainval"), "val": ("val", "test")}  # of ImageSets/Main: the first that is there
SUFFIXES = (".jpg", ".jpeg", ".png")
SMALLEST = 0.3  # share of an image that a random crop in training keeps at least
LARGEST, DEEPEST = 1 << 24, 100  # bytes of an annotation, levels of its XML; VOC's have some thousand, and four
FARTHEST = 1e7  # pixels: no box lies beyond
LAYOUT = "JPEGImages/NAME.jpg, Annotations/NAME.xml and ImageSets/Main/train.txt and val.txt, with a NAME per line"


class Target(NamedTuple):
    """The objects of an image: boxes as left, top, right, bottom in its pixels, classes, and which are hard even to see."""

    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    difficult: NDArray[np.bool_]


@dataclass(frozen=True)
class Annotated:
    """An image file and its objects, in pixels of the file."""

    path: Path
    target: Target


class VocImages(ImageData):
    """Images with objects, scaled to a square of ``image_size``.

    With ``augment`` a random part is taken, which keeps the objects whose middle is in it, and mirrored half the time.
    """

    def __init__(
        self, annotated: Sequence[Annotated], class_names: Sequence[str], *, image_size: int, augment: bool, seed: int
    ) -> None:
        shape = (3, image_size, image_size)
        super().__init__(classes=len(class_names), image_shape=shape, augment=augment, seed=seed)
        self.annotated, self.class_names = list(annotated), tuple(class_names)
        self.preprocessing = Preprocessing(shape[1:], MEAN, STD, labels=self.class_names)

    def __len__(self) -> int:
        return len(self.annotated)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, list[Target]]:
        """Images, and a `Target` for each."""
        images, targets = zip(*(self._read(index) for index in indices), strict=True)
        return torch.from_numpy(np.stack(images)), list(targets)

    def _read(self, index: int) -> tuple[NDArray[np.float32], Target]:
        annotated, size = self.annotated[index], self.image_shape[1]
        (draws,) = self.draws([index], CROP_DRAWS)
        taken: list[tuple[float, float, float, float]] = []

        def cut(image: Image.Image) -> Image.Image:
            whole = (0.0, 0.0, float(image.width), float(image.height))
            part = crop_box(image.size, draws, SMALLEST) if self.augment else whole
            taken.append(part if inside(annotated.target, part).any() else whole)
            return image.resize((size, size), Image.Resampling.BILINEAR, taken[0])

        image = normalized(read_pixels(annotated.path, cut))
        target = cropped(annotated.target, taken[0], size)
        return mirrored(image, target) if self.augment and draws[4] < 0.5 else (image, target)


def inside(target: Target, part: tuple[float, float, float, float]) -> NDArray[np.bool_]:
    """Which objects have their middle in a part of the image."""
    middle = (target.boxes[:, :2] + target.boxes[:, 2:]) / 2
    left, top, right, bottom = part
    x, y = middle.T
    within: NDArray[np.bool_] = (x >= left) & (x < right) & (y >= top) & (y < bottom)
    return within


def cropped(target: Target, part: tuple[float, float, float, float], size: int) -> Target:
    """The objects of a part of the image, in pixels of that part scaled to ``size``."""
    left, top, right, bottom = part
    corner, scale = np.array([left, top] * 2), size / np.array([right - left, bottom - top] * 2)
    kept = inside(target, part)
    boxes = ((target.boxes[kept] - corner) * scale).clip(0, size).astype(np.float32)
    return Target(boxes, target.labels[kept], target.difficult[kept])


def mirrored(image_chw: NDArray[np.float32], target: Target) -> tuple[NDArray[np.float32], Target]:
    """Left and right exchanged."""
    width = image_chw.shape[2]
    left, top, right, bottom = target.boxes.T
    boxes = np.stack([width - right, top, width - left, bottom], 1)
    return np.ascontiguousarray(image_chw[:, :, ::-1]), target._replace(boxes=boxes)


def voc(data_dir: Path, split: str, *, image_size: int, augment: bool, seed: int) -> VocImages:
    """The images of a split, of every year that is there.

    Classes are VOC's twenty, or those of ``label_list.txt`` in ``data_dir``, one name per line.
    """
    names = _class_names(data_dir)
    annotated: list[Annotated] = []
    problems: list[str] = []
    for folder, listed in _find(data_dir, split):
        for name in listed:
            try:
                annotated.append(
                    Annotated(_image(folder, name), read_annotation(folder / "Annotations" / f"{name}.xml", names))
                )
            except DataError as error:
                problems.append(str(error))
    if problems:
        raise DataError(f"{data_dir}: {count_of(problems, 'image')} of {split} cannot be used:\n{shortened(problems)}")
    return VocImages(annotated, names, image_size=image_size, augment=augment, seed=seed)


def read_annotation(path: Path, class_names: Sequence[str]) -> Target:
    """The objects of an annotation file. Its pixels are counted from 1, and a box includes its last."""
    try:
        root = _parsed(read_bytes(path, LARGEST))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such annotation.") from None
    except (ET.ParseError, OSError, ValueError, LookupError) as error:  # the last two: an encoding that nobody knows
        raise DataError(f"{path}: cannot be read: {error}.") from error
    boxes, labels, difficult = [], [], []
    for item in root.iter("object"):
        label = (item.findtext("name") or "").strip()
        if label not in class_names:
            raise DataError(f"{path}: the class {label!r} is not known.{nearest(label, class_names)}")
        boxes.append(_box(path, item))
        labels.append(class_names.index(label))
        difficult.append((item.findtext("difficult") or "0").strip() == "1")
    return Target(np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int64), np.array(difficult, np.bool_))


def _parsed(content: bytes) -> ET.Element:
    """The root of an XML file without definitions of its own, by which a few lines can stand for gigabytes."""
    parser = ET.XMLParser(target=_Builder())
    parser.feed(content)
    root: ET.Element = parser.close()
    return root


class _Builder(ET.TreeBuilder):
    """Elements as they are read, none of them deep."""

    depth = 0

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("it has a <!DOCTYPE>, which no annotation needs. Remove that line")

    def start(self, tag: Any, attrs: Any) -> ET.Element:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        return super().start(tag, attrs)

    def end(self, tag: str) -> ET.Element:
        self.depth -= 1
        return super().end(tag)


def _box(path: Path, item: ET.Element) -> tuple[float, float, float, float]:
    try:
        left, top, right, bottom = (
            float(item.findtext(f"bndbox/{key}", "").strip()) for key in ("xmin", "ymin", "xmax", "ymax")
        )
    except ValueError as error:
        raise DataError(f"{path}: an object has no box of four numbers: {error}.") from error
    if not (right >= left and bottom >= top):  # written so that NaN fails, too
        raise DataError(f"{path}: a box ends before it begins: {left, top, right, bottom}.")
    if max(abs(side) for side in (left, top, right, bottom)) > FARTHEST:
        raise DataError(f"{path}: a box lies outside of any image: {left, top, right, bottom}.")
    return left - 1, top - 1, right, bottom


def _class_names(data_dir: Path) -> tuple[str, ...]:
    path = data_dir / "label_list.txt"
    if not path.is_file():
        return CLASSES
    names = tuple(_lines(path))
    if not names or len(set(names)) < len(names):
        raise DataError(f"{path}: has {'no names' if not names else 'a name twice'}. It needs one class per line.")
    return names


def _lines(path: Path) -> list[str]:
    """The lines of a list that are not blank."""
    try:
        return [line.strip() for line in read_text(path).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}. A list is text in UTF-8, with a name per line.") from error


def _find(data_dir: Path, split: str) -> list[tuple[Path, list[str]]]:
    """Every folder with a list of the split, and the names on it."""
    places = [data_dir, *sorted(data_dir.glob("VOC2*")), *sorted(data_dir.glob("VOCdevkit/VOC2*"))]
    split_lists = []
    for folder in places:
        lists = [folder / "ImageSets" / "Main" / f"{name}.txt" for name in LISTS[split]]
        path = next((path for path in lists if path.is_file()), None)
        if path is not None:
            names = [line.split()[0] for line in _lines(path)]
            if not names:
                raise DataError(f"{path}: the list is empty.")
            split_lists.append((folder, names))
    if not split_lists:
        raise DataError(
            f"{data_dir}: no VOC data was found: there is no ImageSets/Main/{LISTS[split][0]}.txt in it, nor in VOC2* or "
            f"VOCdevkit/VOC2* below. Wanted: {LAYOUT}. Name the folder with data_dir; nothing is downloaded."
        )
    return split_lists


def _image(folder: Path, name: str) -> Path:
    for suffix in SUFFIXES:
        path = folder / "JPEGImages" / f"{name}{suffix}"
        if os.path.isfile(path):  # unlike Path.is_file, it does not raise for a name that is too long
            return path
    raise DataError(f"{folder / 'JPEGImages' / name}.jpg: there is no such image, nor one that ends in .jpeg or .png.")
