"""How training images are varied: pure functions of pixels and of random numbers in [0, 1)."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SHIFT_DRAWS = 3
CROP_DRAWS = 5
SMALLEST, RATIO = 0.08, (3 / 4, 4 / 3)  # of a random crop: its share of the area at least, and width over height


def shifted(images_nchw: NDArray[Any], draws: NDArray[np.float64], *, pad: int, flip: bool, fill: float = 0) -> NDArray[Any]:
    """Each image moved by up to ``pad`` pixels, with ``fill`` where nothing was, and half of them mirrored."""
    count, channels, height, width = images_nchw.shape
    padded = np.full((count, channels, height + 2 * pad, width + 2 * pad), fill, images_nchw.dtype)
    padded[:, :, pad : pad + height, pad : pad + width] = images_nchw
    tops, lefts = ((draws[:, k] * (2 * pad + 1)).astype(int).tolist() for k in (0, 1))
    moved = np.empty_like(images_nchw)
    for number, (top, left, mirror) in enumerate(zip(tops, lefts, draws[:, 2] < 0.5, strict=True)):
        part = padded[number, :, top : top + height, left : left + width]
        moved[number] = part[:, :, ::-1] if mirror and flip else part
    return moved


def random_crop(image: Image.Image, draws: NDArray[np.float64], size: int) -> Image.Image:
    """A random part of the image, of random area and shape, scaled to ``size`` x ``size`` and mirrored half the time."""
    box = crop_box(image.size, draws)
    cut = image.resize((size, size), Image.Resampling.LANCZOS, box)
    return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draws[4] < 0.5 else cut


def crop_box(
    size: tuple[int, int], draws: NDArray[np.float64], smallest: float = SMALLEST
) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of a random crop within an image of this width and height.

    The ratio is drawn first, and the area then no larger than fits: every draw is a crop, none is repeated.
    """
    width, height = size
    ratio = math.exp(_between(math.log(RATIO[0]), math.log(RATIO[1]), draws[0]))
    largest = min(1.0, width / height / ratio, height / width * ratio)
    area = _between(min(smallest, largest), largest, draws[1]) * width * height
    cut_width = min(float(width), max(1.0, math.sqrt(area * ratio)))
    cut_height = min(float(height), max(1.0, math.sqrt(area / ratio)))
    left, top = draws[2] * (width - cut_width), draws[3] * (height - cut_height)
    return left, top, left + cut_width, top + cut_height


def _between(low: float, high: float, draw: float) -> float:
    return low + (high - low) * float(draw)
