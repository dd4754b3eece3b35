"""``quaver.Preprocessing``: how an image file becomes what a program takes, and what the classes are called."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from quaver.checking import Rule, check, one_of, whole
from quaver.errors import ConfigError
from quaver.image_input import ImageInput
from quaver.records import MisfitError, decoded

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos")


def _height_and_width() -> Rule:
    side = whole(1)

    def allows(value: Any) -> bool:
        return len(value) == 2 and all(map(side.allows, value))

    return Rule("height and width, such as (224, 224)", allows)


_RULES = {
    "size": _height_and_width(),
    "resize": whole(0),
    "filter": one_of(*FILTERS),
    "labels": Rule("a list of texts", lambda value: all(isinstance(label, str) for label in value)),
}


@dataclass(frozen=True)
class Preprocessing:
    """The steps from an image file to a tensor, as they were in training; every file that is exported carries them.

    The image is scaled with ``filter``: its short side to ``resize``, of which the middle of ``size`` (height, width) is cut
    out; or, where ``resize`` is 0, all of it to ``size``. Then a byte b of a channel becomes ``(b / unit − mean) / std``, as
    `ImageInput` has it, in RGB and NCHW. ``labels`` are the names of the classes, in their order.
    """

    size: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float]
    unit: int = 255
    resize: int = 0
    filter: str = "bilinear"
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("size", "labels"):
            given = getattr(self, name)
            is_several = isinstance(given, Sequence) and not isinstance(given, str)
            object.__setattr__(self, name, tuple(given) if is_several else ())
        check("Preprocessing", {name: getattr(self, name) for name in _RULES}, _RULES)
        image = ImageInput(self.mean, self.std, unit=self.unit)
        object.__setattr__(self, "mean", image.mean)
        object.__setattr__(self, "std", image.std)

    @classmethod
    def from_json(cls, value: Any) -> "Preprocessing":
        """As a file has it."""
        fields = {name: item for name, item in decoded(dict[str, Any], value).items() if name in cls.__annotations__}
        try:
            return cls(**fields)
        except (TypeError, ConfigError) as error:
            raise MisfitError(f"not how images are prepared: {error}") from error

    def record(self, image: ImageInput | None = None, layout: str = "NCHW") -> dict[str, Any]:
        """The same for JSON, with what follows from it: the crop, and how a file takes images, in bytes or in floats."""
        taken = {"layout": layout, "color": "RGB", "dtype": "float32"}
        if image is not None:
            taken = {name: getattr(image, name) for name in taken}
        return asdict(self) | {"crop": "center" if self.resize else "none"} | taken

    def image(self, *, layout: str = "NHWC", color: str = "RGB", size: Sequence[int] | None = None) -> ImageInput:
        """What to give `quaver.export` for a file that takes bytes of just this mean and std."""
        return ImageInput(self.mean, self.std, layout=layout, color=color, unit=self.unit, size=size)

    def agrees_with(self, image: ImageInput) -> bool:
        """Whether bytes stand for the same there, but for the last bit."""
        ours, theirs = self.image().table(), image.table()
        return ours.shape == theirs.shape and bool(abs(ours - theirs).max() <= 1e-5 * abs(theirs).max())
