"""``models.load_weights``: a weights file into a model, all of it or an error that lists what does not fit."""

import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file
from torch import Tensor, nn

from quaver.errors import StorageError
from quaver.files import name_or_content
from quaver.models.yolov3 import YOLOv3

WRAPPERS = ("state_dict", "model_state_dict", "model")  # under which training scripts keep the weights in a checkpoint
PARALLEL = "module."  # what DistributedDataParallel puts before every name


def load_weights(model: nn.Module, path: str | Path, *, new_head: bool = False) -> list[str]:
    """Copy the weights of a file into the model, and give the names of those that were left as they are.

    Reads ``.safetensors``, or ``.pth`` and ``.pt`` with ``weights_only=True``: no code of the file is run. Every name and
    shape must fit. ``new_head`` allows one exception, for a file that was trained for another number of classes: where the
    last layer has another shape than the file's, it stays as it is and its names are given back.
    """
    path = Path(path)
    stored = read_weights(path)
    expected = model.state_dict()
    left = [name for name in (head_names(model) if new_head else []) if name in stored and not _fits(name, stored, expected)]
    problems = _problems(stored, expected, left)
    if problems:
        hint = "" if new_head else " new_head=True allows a last layer of another shape."
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise StorageError(
            f"{path}: does not fit {type(model).__name__} in {len(problems)} places:\n{lines}\n{_WAY_OUT}{hint}"
        )
    kept = {name: expected[name] for name in left}
    model.load_state_dict({name: kept.get(name, stored.get(name)) for name in expected})
    return left


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a weights file by name, without what a checkpoint or data-parallel training wraps around them."""
    if not path.is_file():
        fact = "this is a folder" if path.is_dir() else "there is no such file"
        raise StorageError(f"{path}: {fact}. Name a .safetensors, .pth or .pt file with a model's weights.")
    content = _read(path)
    for key in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(_is_weight(*pair) for pair in content.items()):
        raise StorageError(f"{path}: holds no table of tensors. Save model.state_dict(), best as .safetensors.")
    odd = [f"  {name}: {fact}" for name, value in content.items() if (fact := _oddity(value))]
    if odd:
        raise StorageError(f"{path}: {len(odd)} of its tensors are no weights:\n" + "\n".join(odd))
    if all(name.startswith(PARALLEL) for name in content):
        return {name.removeprefix(PARALLEL): value for name, value in content.items()}
    return content


def head_names(model: nn.Module) -> list[str]:
    """The parameters whose shape follows the number of classes: of a detector's heads, or else of the last layer."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    heads = model.head_layers() if isinstance(model, YOLOv3) else layers[-1:]
    own = {id(parameter) for head in heads for parameter in head.parameters()}
    return [name for name, parameter in model.named_parameters() if id(parameter) in own]


_WAY_OUT = "Is it the same architecture, with the same options?"


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            given = name_or_content(path)
            return load_file(given) if isinstance(given, str) else load(given)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise StorageError(
            f"{path}: holds more than tensors, and would run code when read. Save model.state_dict(), best as .safetensors."
        ) from error
    except Exception as error:  # of a damaged file: torch's unpickling fails in any way
        raise StorageError(f"{path}: cannot be read as weights: {error or type(error).__name__}.") from error


def _is_weight(name: Any, value: Any) -> bool:
    return isinstance(name, str) and isinstance(value, Tensor)


def _oddity(tensor: Tensor) -> str:
    """What keeps a tensor from being a weight, if anything does."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        return "it is not stored value by value (a sparse or nested tensor)"
    if tensor.is_meta:
        return "it has no values (it was saved from the meta device)"
    if tensor.is_quantized or tensor.is_complex():
        return f"its values are {tensor.dtype}"
    return ""


def _fits(name: str, stored: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return stored[name].shape == expected[name].shape


def _misfit(name: str, stored: Tensor, expected: Tensor) -> str:
    """What is wrong with the values of a weight, if anything is."""
    if stored.is_floating_point() != expected.is_floating_point():
        return f"{name}: the file has {stored.dtype}, the model {expected.dtype}"
    if stored.is_floating_point() and _all_finite(expected) and not _all_finite(stored):
        return f"{name}: holds NaN or Inf"
    if name.endswith("running_var") and bool((stored.float() < 0).any()):
        return f"{name}: holds a variance below zero"
    return ""


def _all_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor.float()).all())


def _problems(stored: dict[str, Tensor], expected: dict[str, Tensor], left: list[str]) -> list[str]:
    """Every name that is only on one side, and every shape that differs."""
    problems = [
        f"missing from the file: {name} {tuple(tensor.shape)}" for name, tensor in expected.items() if name not in stored
    ]
    problems += [
        f"unknown to the model: {name} {tuple(tensor.shape)}" for name, tensor in stored.items() if name not in expected
    ]
    problems += [
        f"{name}: the file has {tuple(stored[name].shape)}, the model {tuple(expected[name].shape)}"
        for name in expected
        if name in stored and name not in left and not _fits(name, stored, expected)
    ]
    fitting = [name for name in expected if name in stored and name not in left and _fits(name, stored, expected)]
    problems += [fact for name in fitting if (fact := _misfit(name, stored[name], expected[name]))]
    return problems
