"""A detection set to try things on, drawn rather than downloaded, in the layout of VOC.

Reddish squares, greenish discs and bluish crosses on a noisy ground.
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from quaver.checking import Rule, check, whole
from quaver.errors import DataError

CLASSES = ("square", "disc", "cross")
MOST = 3  # shapes in an image
QUALITY = 95  # of a JPEG file
Box = tuple[int, int, int, int]


def write_shapes(folder: str | Path, *, train: int, val: int, size: int, sides: tuple[int, int] = (9, 15)) -> Path:
    """``train`` and ``val`` images of ``size`` pixels, for ``open_dataset("voc", …, data_dir=folder)``; the same every time.

    Each has one to three shapes that do not touch, as wide as ``sides`` says, the smallest and the largest, in pixels. A
    folder that holds something is refused: it may be a data set.
    """
    check("write_shapes", {"train": train, "val": val, "size": size}, dict.fromkeys(("train", "val", "size"), whole(1)))
    check("write_shapes", {"sides": sides}, {"sides": _within(size)})
    folder = Path(folder)
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        raise DataError(f"{folder}: is there already, and nothing in it is overwritten. Name an empty folder, or a new one.")
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / part).mkdir(parents=True)
    (folder / "label_list.txt").write_text("\n".join(CLASSES) + "\n")
    for split, numbers in (("train", range(train)), ("val", range(train, train + val))):
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{number:06}\n" for number in numbers))
        for number in numbers:
            _write_image(folder, number, size, sides)
    return folder


def _within(size: int) -> Rule:
    def allows(value: Any) -> bool:
        pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(side, int) for side in value)
        return pair and 1 <= value[0] <= value[1] < size

    return Rule(f"the smallest and the largest side, above 0 and below {size}", allows)


def _write_image(folder: Path, number: int, size: int, sides: tuple[int, int]) -> None:
    generator = np.random.default_rng(number)
    image = Image.fromarray(generator.integers(30, 60, (size, size, 3), dtype=np.uint8))
    boxes: list[Box] = []
    objects = []
    for _ in range(generator.integers(1, MOST + 1)):
        side = int(generator.integers(sides[0], sides[1] + 1))
        left, top = (int(value) for value in generator.integers(0, size - side, 2))
        box = (left, top, left + side, top + side)
        if any(_touch(box, other) for other in boxes):
            continue
        boxes.append(box)
        label = int(generator.integers(len(CLASSES)))
        _draw(ImageDraw.Draw(image), CLASSES[label], box, _colour(generator, label))
        objects.append(_annotation(CLASSES[label], box))
    image.save(folder / "JPEGImages" / f"{number:06}.jpg", quality=QUALITY)
    (folder / "Annotations" / f"{number:06}.xml").write_text(f"<annotation>{''.join(objects)}</annotation>")


def _touch(box: Box, other: Box) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _colour(generator: np.random.Generator, label: int) -> tuple[int, ...]:
    colour = generator.integers(0, 90, 3)
    colour[label] += 165
    return tuple(colour.tolist())


def _draw(pen: ImageDraw.ImageDraw, kind: str, box: Box, colour: tuple[int, ...]) -> None:
    left, top, right, bottom = box[0], box[1], box[2] - 1, box[3] - 1
    third = (box[2] - box[0]) // 3
    if kind == "square":
        pen.rectangle((left, top, right, bottom), colour)
    elif kind == "disc":
        pen.ellipse((left, top, right, bottom), colour)
    else:
        pen.rectangle((left + third, top, right - third, bottom), colour)
        pen.rectangle((left, top + third, right, bottom - third), colour)


def _annotation(kind: str, box: Box) -> str:
    """VOC counts pixels from 1, and a box includes its last."""
    corners = zip(("xmin", "ymin", "xmax", "ymax"), (box[0] + 1, box[1] + 1, box[2], box[3]), strict=True)
    numbers = "".join(f"<{key}>{value}</{key}>" for key, value in corners)
    return f"<object><name>{kind}</name><difficult>0</difficult><bndbox>{numbers}</bndbox></object>"
