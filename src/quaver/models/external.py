"""External models: the user's own function, timm, torchvision. Nothing here downloads weights."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

from torch import nn

from quaver.checking import nearest
from quaver.errors import ConfigError

LIBRARIES = ("timm", "torchvision")
WITH_AUXILIARY = ("googlenet", "inception_v3")  # of torchvision: in training they give further logits of auxiliary layers


def split(name: str) -> tuple[str, str]:
    """``timm/resnet18`` as library and name; both ``/`` and ``:`` are in use.

    >>> split("timm/resnet18"), split("torchvision:vgg11"), split("resnet18")
    (('timm', 'resnet18'), ('torchvision', 'vgg11'), ('', 'resnet18'))
    """
    for library in LIBRARIES:
        if name.startswith((f"{library}/", f"{library}:")):
            return library, name[len(library) + 1 :]
    return "", name


def is_external(name: str) -> bool:
    """Whether a name is not one of the zoo's, but stands for code of others.

    >>> is_external("package.module:function"), is_external("timm/resnet18"), is_external("resnet18")
    (True, True, False)
    """
    return ":" in name or split(name)[0] != ""


def from_library(library: str, name: str, options: dict[str, Any]) -> nn.Module:
    """A library's model with fresh weights, or with those that ``options`` ask for as the library calls them."""
    try:
        module = importlib.import_module(library if library == "timm" else "torchvision.models")
    except (ImportError, RuntimeError) as error:  # torchvision raises RuntimeError when it does not fit torch
        raise ConfigError(
            f"model '{library}/{name}': {library} cannot be imported: {error}. Install it, in a version that fits torch, or "
            "use a model of the zoo."
        ) from error
    try:
        return checked(f"{library}/{name}", _made(module, library, name, options))
    except (ValueError, RuntimeError, TypeError, OSError) as error:  # no such model or option, or weights out of reach
        models = module.list_models() if hasattr(module, "list_models") else []
        hint = "" if name in models else nearest(name, models)
        raise ConfigError(f"model '{library}/{name}': {library} cannot build it: {str(error).rstrip('.')}.{hint}") from error


def _made(module: Any, library: str, name: str, options: dict[str, Any]) -> Any:
    if library == "timm":
        return module.create_model(name, **options)
    if "weights_backbone" not in options and "weights_backbone" in signature(module.get_model_builder(name)).parameters:
        options = {"weights_backbone": None} | options  # of detectors and the like: by default it would download them
    if name in WITH_AUXILIARY and "weights" not in options:  # with weights of theirs, they leave it out themselves
        options = {"aux_logits": False, "init_weights": True} | options
    return module.get_model(name, **options)


def factory(name: str) -> Callable[..., Any]:
    """The function behind ``package.module:function``; modules of the current folder are found, too."""
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ConfigError(f"model {name!r}: takes the form package.module:function.")
    with _current_folder_on_path():
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ConfigError(f"model {name!r}: {module_name} cannot be imported: {error}.") from error
    value: Any = module
    for part in function_name.split("."):
        value = getattr(value, part, None)
    if not callable(value):
        raise ConfigError(f"model {name!r}: {module_name} has no function {function_name!r}.")
    function: Callable[..., Any] = value
    return function


def checked(name: str, model: Any) -> nn.Module:
    """The model, if it is one."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model {name!r}: gave a {type(model).__name__}, not a torch.nn.Module.")
    return model


@contextmanager
def _current_folder_on_path() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
