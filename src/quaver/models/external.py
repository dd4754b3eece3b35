"""External models: the user's own function, timm, torchvision. Nothing here downloads weights."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from quaver.checking import nearest
from quaver.errors import ConfigError, QuaverError
from quaver.source_lines import SourceLine, source_lines

_NOT_THEIRS = tuple(str(Path(file).parent) for file in (torch.__file__, __file__, importlib.__file__))
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
    if module_name.endswith(".py"):
        dotted = ".".join(Path(module_name).with_suffix("").parts)
        raise ConfigError(f"model {name!r}: names a file. Name the module instead: {dotted}:{function_name}.")
    with _current_folder_on_path():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or f"{module_name}.".startswith(f"{error.name}."):
                raise ConfigError(f"model {name!r}: {module_name} cannot be imported: {error}.") from error
            raise in_their_code(name, error) from error
        except Exception as error:  # of whatever the module does
            raise in_their_code(name, error) from error
    value: Any = module
    for part in function_name.split("."):
        value = getattr(value, part, None)
    if not callable(value):
        raise ConfigError(f"model {name!r}: {module_name} has no function {function_name!r}.")
    function: Callable[..., Any] = value
    return function


def made_by(name: str, function: Callable[..., Any], options: dict[str, Any]) -> nn.Module:
    """The model that a user's function makes."""
    try:
        return checked(name, function(**options))
    except QuaverError:
        raise
    except Exception as error:  # of whatever the function does
        raise in_their_code(name, error) from error


def in_their_code(name: str, error: Exception) -> ConfigError:
    """An error of a user's own code in three lines: what, where, and the line."""
    what = f"model {name!r}: {type(error).__name__}: {error}"
    lines = source_lines(error.__traceback__, without=_NOT_THEIRS)
    if isinstance(error, SyntaxError) and error.filename:
        lines, what = [SourceLine(error.filename, error.lineno or 0, "")], f"model {name!r}: SyntaxError: {error.msg}"
    if not lines:
        return ConfigError(what)
    line = lines[-1]
    place = f"{line.file}:{line.number}" + (f", in {line.function}" if line.function.isidentifier() else "")
    return ConfigError(f"{what}\n  {place}\n    {line.text}")


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
