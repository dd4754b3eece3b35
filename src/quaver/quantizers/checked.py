"""What a user's function gave back, before the network runs on it."""

from typing import Any

import torch
from torch import Tensor

from quaver.errors import ConfigError


def checked(result: Any, x: Tensor, who: str, *, values: bool) -> None:
    """Refuse anything but a tensor of the shape and dtype of ``x``, and, with ``values``, NaN or Inf made of numbers."""
    if not isinstance(result, Tensor):
        raise ConfigError(f"{who} gave back {type(result).__name__}, not a tensor.")
    if result.shape != x.shape:
        raise ConfigError(
            f"{who} made a tensor of shape {tuple(result.shape)} of one of shape {tuple(x.shape)}. It must keep the shape."
        )
    if result.dtype != x.dtype:
        raise ConfigError(f"{who} made {result.dtype} of {x.dtype}. It must keep the dtype: end it with .to(x.dtype).")
    if values and bool(torch.isfinite(x).all()) and not bool(torch.isfinite(result).all()):
        raise ConfigError(
            f"{who} made NaN or Inf of a tensor without. Look at what it divides by, or takes the logarithm of."
        )
