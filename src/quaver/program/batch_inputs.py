"""A batch as loaders give it: one tensor, several in a tuple, or several by name; alone, or with labels behind them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quaver.errors import InputError

LABELS = "labels"
"""What a dict calls them; a model that takes an input of this name has none beside it."""


def read_batch(batch: Any, names: Sequence[str], who: str) -> tuple[list[Tensor], Any]:
    """What a model with inputs of these ``names`` takes, in their order, and the labels, None where there are none."""
    given, labels = split_batch(batch, len(names), who)
    if isinstance(given, dict):
        if labels is None and LABELS not in names:
            labels = given.get(LABELS)
        given = tuple(given[name] for name in names if name in given)
    if len(given) != len(names):
        raise _no_batch(batch, names, who)
    return [_tensor(value, who) for value in given], labels


def split_batch(batch: Any, takes: int, who: str) -> tuple[tuple[Any, ...] | dict[str, Any], Any]:
    """Inputs, in order or by name, and labels; of a plain row, labels are what comes behind as many as the model takes."""
    labels = None
    if isinstance(batch, tuple | list) and len(batch) == 2 and _are_inputs(batch[0]):
        batch, labels = batch
    elif isinstance(batch, tuple | list) and len(batch) == takes + 1:
        *batch, labels = batch
    if isinstance(batch, Mapping):
        return dict(batch), labels
    if isinstance(batch, tuple | list):
        return tuple(batch), labels
    if isinstance(batch, Tensor | np.ndarray):
        return (batch,), labels
    raise _no_batch(batch, [""] * takes, who)


def _are_inputs(value: Any) -> bool:
    """Whether this is a row or a dict of tensors, and not a tensor written as lists of numbers."""
    return isinstance(value, Mapping) or (
        isinstance(value, tuple | list) and any(isinstance(item, Tensor | np.ndarray) for item in value)
    )


def _tensor(value: Any, who: str) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{who}: an input of a batch is a tensor or an array, and this one is not: {error}.") from error


def _no_batch(batch: Any, names: Sequence[str], who: str) -> InputError:
    have = f"a dict of {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
    if len(names) == 1:
        return InputError(f"{who}: a batch is images, or a pair (images, labels), not {have}.")
    named = f" ({', '.join(names)})" if all(names) else ""
    return InputError(
        f"{who}: the model has {len(names)} inputs{named}: a batch is a tuple or a dict of them, or a pair of these and "
        f"labels, not {have}."
    )
