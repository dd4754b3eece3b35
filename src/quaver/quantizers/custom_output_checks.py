"""What a user's function gave back, before the network runs on it."""

from typing import Any

import torch
from torch import Tensor, nn

from quaver.errors import ConfigError


def tried(function: nn.Module, x: Tensor, who: str) -> Any:
    """What a user's function makes of ``x``. One that fails, or writes into ``x``, is named."""
    version = None if x.is_inference() else x._version
    try:
        result = function(x)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a user's function raises
        raise ConfigError(
            f"{who} failed: {type(error).__name__}: {error}. It is called with one tensor, and gives one back."
        ) from error
    if version is not None and x._version != version:
        raise ConfigError(
            f"{who} writes into the tensor that it is given, which others need. Let it make another: x.mul, not x.mul_."
        )
    return result


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
