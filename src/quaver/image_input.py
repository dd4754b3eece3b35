"""``quaver.ImageInput``: a file that takes a camera's bytes, and what becomes of them."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.checking import Rule, check, one_of, whole
from quaver.errors import ConfigError, InputError
from quaver.image_layouts import COLORS, LAYOUTS
from quaver.image_scaling import scaled
from quaver.records import MisfitError, decoded

BYTES = 256  # values that a pixel can have
_UNITS = (255, 1)


def _numbers(description: str, allows: Any = math.isfinite) -> Rule:
    """A number for each channel."""

    def fits(values: Any) -> bool:
        return bool(values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) and allows(value) for value in values
        )

    return Rule(f"{description} for each channel, such as (0.5, 0.5, 0.5)", fits)


_RULES = {
    "mean": _numbers("a finite number"),
    "std": _numbers("a number above 0", lambda value: 0 < value < math.inf),
    "layout": one_of(*LAYOUTS),
    "dtype": one_of("uint8"),
    "color": one_of(*COLORS),
    "size": Rule(
        "height and width of the camera's images, such as (480, 640), or None",
        lambda value: value is None or (len(value) == 2 and all(map(whole(1).allows, value))),
    ),
    "unit": Rule("255 (mean and std as shares, torchvision's) or 1 (mean and std in bytes)", lambda value: value in _UNITS),
}


@dataclass(frozen=True)
class ImageInput:
    """Images as a camera gives them: a byte b of a channel stands for ``(b / unit − mean) / std``.

    Each of the three steps is rounded to float32, as torchvision's ``ToTensor`` and ``Normalize`` do, so that a file gives
    what the program gives behind those. ``mean`` and ``std`` have a number for each channel, in the order of the program
    (RGB), whatever the ``color`` of the images. With the ``unit`` of 255 they are shares of white, as torchvision has them;
    with 1 they are bytes: EfficientNet-Lite's ``(b − 127) / 128`` is ``ImageInput((127,) * 3, (128,) * 3, unit=1)``.

    ``size``, height and width of the camera's images, where they are not the program's: the file scales them
    (`quaver.image_scaling`), between the four nearest pixels.

    >>> ImageInput((127,) * 3, (128,) * 3, unit=1).table()[0, [0, 127, 255]].tolist()
    [-0.9921875, 0.0, 1.0]
    """

    mean: Sequence[float]
    std: Sequence[float]
    layout: str = "NHWC"
    dtype: str = "uint8"
    color: str = "RGB"
    unit: int = 255
    size: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            given = getattr(self, name)
            object.__setattr__(self, name, tuple(given) if isinstance(given, Sequence | np.ndarray) else ())
        if self.size is not None:
            object.__setattr__(self, "size", tuple(self.size) if isinstance(self.size, Sequence) else ())
        check("ImageInput", asdict(self), _RULES)
        if len(self.mean) != len(self.std):
            raise ConfigError(
                f"ImageInput: mean has {len(self.mean)} numbers and std {len(self.std)}: one for each channel."
            )
        if self.color == "BGR" and self.channels != 3:
            raise ConfigError(f"ImageInput: color='BGR' has three channels, and mean has {self.channels} numbers.")

    @classmethod
    def from_json(cls, value: Any) -> "ImageInput":
        """As a file's provenance has it."""
        fields = decoded(dict[str, Any], value)
        try:
            return cls(**fields)
        except (TypeError, ConfigError) as error:
            raise MisfitError(f"not how a file takes images: {error}") from error

    def record(self) -> dict[str, Any]:
        """The same, for JSON."""
        return asdict(self)

    @property
    def channels(self) -> int:
        """How many channels the images have."""
        return len(self.mean)

    @property
    def axis(self) -> int:
        """Which axis of a batch has the channels."""
        return self.layout.index("C")

    def shape(self, shape_nchw: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of a batch of images, of that of the program's input."""
        batch, channels, *size = shape_nchw
        height, width = self.size or size
        return (batch, height, width, channels) if self.layout == "NHWC" else (batch, channels, height, width)

    def table(self) -> NDArray[np.float32]:
        """What every byte stands for: channels x 256."""
        bytes_of = np.arange(BYTES, dtype=np.float32) / np.float32(self.unit)
        mean, std = (np.array(values, np.float32)[:, None] for values in (self.mean, self.std))
        return (bytes_of - mean) / std

    def prepared(self, images: NDArray[Any], size: Sequence[int] | None = None) -> NDArray[np.float32]:
        """The tensor that the program takes for images like these: NCHW, float32, channels in the program's order.

        ``size``: height and width that it takes, where the file scales images.
        """
        if self.size is not None and size is None:
            raise InputError("ImageInput.prepared: images are scaled. Say to which height and width: size=(224, 224).")
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[self.axis] != self.channels:
            raise InputError(f"takes {self.words()}, not {images.dtype} of shape {images.shape}.")
        pixels = np.moveaxis(images, self.axis, 3)
        if self.size is not None and size is not None:
            pixels = scaled(pixels, (size[0], size[1]))
        planes = np.moveaxis(pixels, 3, 1)
        planes = planes[:, ::-1] if self.color == "BGR" else planes
        return np.stack([values[planes[:, channel]] for channel, values in enumerate(self.table())], axis=1)

    def images_of(self, prepared_nchw: NDArray[np.float32], *, nearest: bool = False) -> NDArray[np.uint8]:
        """The images that became this tensor; an `InputError` where it does not come of bytes in this way.

        With ``nearest``, those that come nearest to it.
        """
        table = self.table()
        if self.size is not None:
            raise InputError(f"the file takes {self.words()}, and scales them: what they were cannot be found from tensors.")
        if prepared_nchw.ndim != 4 or prepared_nchw.shape[1] != self.channels:
            raise InputError(f"images of shape {prepared_nchw.shape} have not {self.channels} channels.")
        planes = np.empty(prepared_nchw.shape, np.uint8)
        for channel, values in enumerate(table):
            plane, step = prepared_nchw[:, channel], values[1] - values[0]
            planes[:, channel] = np.rint((plane - values[0]) / step).clip(0, BYTES - 1)
            if not nearest and np.abs(values[planes[:, channel]] - plane).max(initial=0.0) > 0.01 * step:
                raise InputError(
                    f"the file takes {self.words()}, and these images are no bytes with its mean and std: they were "
                    "prepared otherwise. Give it images as they are, or export without image=."
                )
        planes = planes[:, ::-1] if self.color == "BGR" else planes
        return np.ascontiguousarray(np.moveaxis(planes, 1, self.axis))

    def words(self) -> str:
        """What a file takes."""
        axes = {"NHWC": "images x rows x columns x channels", "NCHW": "images x channels x rows x columns"}[self.layout]
        of_size = "" if self.size is None else f" of {self.size[0]} x {self.size[1]}"
        return f"{self.dtype} images{of_size} as a camera gives them, {self.color}, {self.layout} ({axes})"
