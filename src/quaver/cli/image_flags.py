"""Flags for a file that takes a camera's bytes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quaver.errors import ConfigError

if TYPE_CHECKING:
    from quaver.image_input import ImageInput
    from quaver.preprocessing import Preprocessing

_PANEL = "Images as bytes"


@dataclass(frozen=True, kw_only=True)
class ImageFlags:
    """What was asked for; nothing, where none of the flags is given."""

    image_mean: Annotated[
        str,
        typer.Option(
            "--image_mean",
            help="The file takes uint8 images: their mean in RGB, as 0.485,0.456,0.406. Default: the run's.",
            rich_help_panel=_PANEL,
        ),
    ] = ""
    image_std: Annotated[
        str,
        typer.Option(
            "--image_std", help="Their deviation, as 0.229,0.224,0.225. Default: the run's.", rich_help_panel=_PANEL
        ),
    ] = ""
    image_unit: Annotated[
        int,
        typer.Option(
            "--image_unit",
            help="What bytes are divided by first: 255, or 1 for mean and std in bytes.",
            rich_help_panel=_PANEL,
        ),
    ] = 255
    image_layout: Annotated[
        str,
        typer.Option(
            "--image_layout", help="The file takes uint8 images, NHWC (channels last) or NCHW.", rich_help_panel=_PANEL
        ),
    ] = ""
    image_color: Annotated[
        str, typer.Option("--image_color", help="RGB, or BGR as OpenCV gives them.", rich_help_panel=_PANEL)
    ] = ""

    image_size: Annotated[
        str,
        typer.Option(
            "--image_size",
            help="Height and width of the camera's images, as 480,640: the file scales them. Default: the program's.",
            rich_help_panel=_PANEL,
        ),
    ] = ""

    def image(self, preprocessing: "Preprocessing | None") -> "ImageInput | None":
        """How the file takes images; None where it takes tensors. Mean and std are those ``preprocessing``, unless given."""
        if self == ImageFlags():
            return None
        from quaver.image_input import ImageInput

        order: dict[str, Any] = {
            "layout": (self.image_layout or "NHWC").upper(),
            "color": (self.image_color or "RGB").upper(),
            "size": _size(self.image_size),
        }
        if (
            preprocessing is not None
            and not (self.image_mean or self.image_std)
            and self.image_unit == ImageFlags.image_unit
        ):
            return preprocessing.image(**order)
        mean, std = _numbers("--image_mean", self.image_mean), _numbers("--image_std", self.image_std)
        return ImageInput(mean, std, unit=self.image_unit, **order)


def _size(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--image_size {text!r}: takes height and width, with a comma: 480,640.") from None


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        fact = f"{flag} {text!r}: takes" if text else f"{flag} is missing: a file that takes bytes needs"
        raise ConfigError(f"{fact} a number for each channel, with commas: 0.485,0.456,0.406.") from None
