"""A small detection set in the layout of VOC: reddish squares, greenish discs and bluish crosses on a noisy ground."""

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("square", "disc", "cross")


def write_shapes(folder, *, train, val, size=96):
    """``train`` and ``val`` images of ``size`` pixels with one to three shapes each, and their annotations."""
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / part).mkdir(parents=True)
    (folder / "label_list.txt").write_text("\n".join(CLASSES) + "\n")
    for split, first, count in (("train", 0, train), ("val", train, val)):
        names = [f"{number:06}" for number in range(first, first + count)]
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(names) + "\n")
        for name in names:
            write_image(folder, name, size)
    return folder


def write_image(folder, name, size):
    chance = np.random.default_rng(int(name))
    image = Image.fromarray(chance.integers(30, 60, (size, size, 3), dtype=np.uint8))
    objects, taken = [], []
    for _ in range(chance.integers(1, 4)):
        side = int(chance.integers(10, 26))
        left, top = (int(value) for value in chance.integers(0, size - side, 2))
        box = (left, top, left + side, top + side)
        if any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
            continue
        taken.append(box)
        label = chance.integers(len(CLASSES))
        kind, colour = CLASSES[label], chance.integers(0, 90, 3)
        colour[label] += 165
        draw(ImageDraw.Draw(image), kind, box, tuple(colour.tolist()))
        corners = zip(("xmin", "ymin", "xmax", "ymax"), (left + 1, top + 1, left + side, top + side), strict=True)
        numbers = "".join(f"<{key}>{value}</{key}>" for key, value in corners)
        objects.append(f"<object><name>{kind}</name><difficult>0</difficult><bndbox>{numbers}</bndbox></object>")
    image.save(folder / "JPEGImages" / f"{name}.jpg", quality=95)
    (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{''.join(objects)}</annotation>")


def draw(pen, kind, box, colour):
    left, top, right, bottom = box[0], box[1], box[2] - 1, box[3] - 1
    third = (box[2] - box[0]) // 3
    if kind == "square":
        pen.rectangle((left, top, right, bottom), colour)
    elif kind == "disc":
        pen.ellipse((left, top, right, bottom), colour)
    else:
        pen.rectangle((left + third, top, right - third, bottom), colour)
        pen.rectangle((left, top + third, right, bottom - third), colour)
