"""``models.build``: a model by name, from the zoo, from the user's own code, or from timm and torchvision."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from quaver.checking import nearest
from quaver.errors import ConfigError
from quaver.models import external
from quaver.models.googlenet import googlenet
from quaver.models.mobilenet_v1 import mobilenet_v1
from quaver.models.mobilenet_v2 import mobilenet_v2
from quaver.models.mobilenet_v3 import mobilenet_v3_large, mobilenet_v3_small
from quaver.models.resnet import resnet18, resnet20, resnet34, resnet50, resnet56, resnet101
from quaver.models.squeezenet import squeezenet
from quaver.models.vgg import vgg16, vgg16_bn, vgg19, vgg19_bn
from quaver.models.yolov3 import yolov3_mobilenet_v1

SMALL = 64  # pixels: up to this, the stem that leaves an image its size

_ARCHITECTURES: tuple[Callable[..., nn.Module], ...] = (
    *(googlenet, mobilenet_v1, mobilenet_v2, mobilenet_v3_large, mobilenet_v3_small),
    *(resnet18, resnet20, resnet34, resnet50, resnet56, resnet101),
    *(squeezenet, vgg16, vgg16_bn, vgg19, vgg19_bn, yolov3_mobilenet_v1),
)
ZOO = {architecture.__name__: architecture for architecture in _ARCHITECTURES}
REFERENCE_NAMES = {"mobilenet": "mobilenetv1"}  # where the reference's differ in more than spelling
_WIDTH = re.compile(r"_x(\d+)_(\d+)$")


def names() -> list[str]:
    """The architectures of the zoo."""
    return list(ZOO)


def build(name: str, *, num_classes: int | None = None, image_size: int | None = None, **options: Any) -> nn.Module:
    """A model by name, with fresh weights.

    ``name`` is an architecture of the zoo in either spelling (``mobilenet_v1``, ``MobileNetV1``; the reference's
    ``MobileNet`` and ``MobileNetV3_large_x1_0`` too, where ``x0_5`` is ``scale=0.5``), a function of your own
    (``package.module:function``), ``timm/NAME`` or ``torchvision/NAME``. Up to 64 pixels ``image_size`` chooses the zoo's
    stems for small images. ``options`` are the architecture's own, such as ``scale=0.5``. A function of yours is given
    ``num_classes``, ``image_size`` and ``small_images`` if it has parameters of these names.

    >>> sum(parameter.numel() for parameter in build("ResNet20").parameters())
    272474
    """
    wanted = {"num_classes": num_classes, "image_size": image_size, "small_images": _is_small(image_size)}
    given = {key: value for key, value in wanted.items() if value is not None}
    library, rest = external.split(name)
    if library:
        if num_classes is not None:
            options = {"num_classes": num_classes} | options
        return external.from_library(library, rest, options)
    if ":" in name:
        factory = external.factory(name)
        return external.made_by(name, factory, _accepted(factory, given) | options)
    factory = ZOO[canonical(name)]
    options = _width_in(name, options) | options
    _refuse_unknown(name, factory, options)
    return factory(**_accepted(factory, given) | options)


def canonical(name: str) -> str:
    """The zoo's own spelling of a name.

    >>> canonical("MobileNetV3-Small"), canonical("VGG16BN"), canonical("MobileNet"), canonical("MobileNetV2_x0_5")
    ('mobilenet_v3_small', 'vgg16_bn', 'mobilenet_v1', 'mobilenet_v2')
    """
    written = _letters(_WIDTH.sub("", name))
    for model in ZOO:
        if _letters(model) == REFERENCE_NAMES.get(written, written):
            return model
    raise ConfigError(
        f"model {name!r}: the zoo has no such architecture.{nearest(name.lower(), ZOO)} It has {', '.join(ZOO)}. Others are "
        "given as package.module:function, timm/NAME or torchvision/NAME."
    )


def _width_in(name: str, options: Mapping[str, Any]) -> dict[str, float]:
    """The option that a width behind a name stands for: ``_x0_5`` is ``scale=0.5``."""
    match = _WIDTH.search(name)
    if match is None:
        return {}
    scale = float(f"{match[1]}.{match[2]}")
    if options.get("scale", scale) != scale:
        raise ConfigError(
            f"model {name!r}: its name says scale={scale:g}, and the options scale={options['scale']}. Give one of the two."
        )
    return {"scale": scale}


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _is_small(image_size: int | None) -> bool | None:
    return None if image_size is None else image_size <= SMALL


def _accepted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a function has parameters for."""
    parameters = inspect.signature(function).parameters
    return {key: value for key, value in given.items() if key in parameters}


def _refuse_unknown(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> None:
    taken = list(inspect.signature(factory).parameters)
    wrong = [key for key in options if key not in taken]
    if wrong:
        lines = [f"model {name!r}: has no option {key!r}.{nearest(key, taken)}" for key in wrong]
        raise ConfigError("\n".join(lines) + f"\nIts options: {', '.join(taken)}.")
