"""One image file as the array a classifier takes, prepared as the reference prepares it."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from quaver.errors import DataError
from quaver.reading import open_file

# x / 255, then minus mean, over std: for every channel and each of the 256 values a pixel can have, rounded to float32
# after each step, so that the result has the reference's bits
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SCALED = np.arange(256, dtype=np.float32) / np.float32(255)
_VALUES = tuple(
    ((_SCALED - np.float64(mean)).astype(np.float32) / np.float64(std)).astype(np.float32)
    for mean, std in zip(MEAN, STD, strict=True)
)
# what reading a damaged image can come to in Pillow's many formats
_DAMAGE = (
    *(OSError, SyntaxError, ValueError, RuntimeError, LookupError, TypeError, EOFError, MemoryError, ArithmeticError),
    *(AttributeError, struct.error, zlib.error, Image.DecompressionBombError),
)
_RESAMPLED_AS_THEY_ARE = ("RGB", "L", "CMYK")
_LARGEST = 1 << 27  # pixels of a scaled image; only a strip of pixels 1 : 2000 comes near


def read_image(path: str | Path, size: int = 224) -> NDArray[np.float32]:
    """The image in RGB, its short side scaled to ``size * 256 / 224``, the centre cut out, normalized: 3 x size x size.

    Rotation that a camera noted in the file is not applied, as in the reference. A file that is broken, or is no image, is
    an error that names it.
    """
    return normalized(read_pixels(path, lambda image: cut_out(image, size)))


def read_pixels(path: str | Path, cut: Callable[[Image.Image], Image.Image]) -> NDArray[np.uint8]:
    """The pixels of what ``cut`` makes of an image, in RGB: rows x columns x 3."""
    path = Path(path)
    try:
        with open_file(path) as file, Image.open(file, formats=_formats()) as image:
            return np.asarray(cut(_resampleable(image)).convert("RGB"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such image.") from error
    except UnidentifiedImageError as error:
        raise DataError(f"{path}: this is no image of a kind that Pillow reads.") from error
    except _DAMAGE as error:
        fact = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"{path}: the image cannot be read: {fact}.") from error


def _formats() -> list[str]:
    """All that Pillow reads but EPS, which is a program, and which Pillow would have Ghostscript run."""
    Image.init()
    return [name for name in Image.ID if name != "EPS"]


def normalized(pixels_hwc: NDArray[np.generic]) -> NDArray[np.float32]:
    """Pixels minus ImageNet's mean, over its deviation: 3 x rows x columns."""
    return np.stack([values[pixels_hwc[:, :, channel]] for channel, values in enumerate(_VALUES)])


def _resampleable(image: Image.Image) -> Image.Image:
    """Palette images and the like in RGB; the others unchanged, because the reference converts them after scaling."""
    if image.mode.startswith(("I", "F")):  # Pillow would cut their values off at 255
        raise ValueError(f"its pixels have more than 8 bits (mode {image.mode}); save it with 8")
    return image if image.mode in _RESAMPLED_AS_THEY_ARE else image.convert("RGB")


def short_side(size: int) -> int:
    """What the short side is scaled to before the middle of this size is cut out."""
    return round(size * 256 / 224)


def cut_out(image: Image.Image, size: int) -> Image.Image:
    """The short side scaled to ``size * 256 / 224``, then the middle."""
    factor = short_side(size) / min(image.size)
    width, height = (round(side * factor) for side in image.size)
    if width * height > _LARGEST:
        raise ValueError(f"scaled to {width} x {height} pixels it is too large")
    scaled = image.resize((width, height), Image.Resampling.LANCZOS)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return scaled.crop((left, top, left + size, top + size))
