"""A user's own function in the place of a quantizer, or in front of one."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from quaver.errors import ConfigError
from quaver.quantizers.arithmetic import Stored
from quaver.quantizers.quantizer import SHIFTED, Quantizer

TensorFunction = Callable[[Tensor], Tensor]


class _Function(nn.Module):
    """A plain function in a module's clothes."""

    def __init__(self, function: TensorFunction) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def as_module(function: Any) -> nn.Module:
    """A module of the tensor's own: a class is called, a module copied, a plain function wrapped."""
    if inspect.isclass(function) and issubclass(function, nn.Module):
        return function()
    if isinstance(function, nn.Module):
        return copy.deepcopy(function)
    if callable(function):
        return _Function(function)
    raise ConfigError(f"{function!r}: a custom function is an nn.Module class, an nn.Module, or a function of one tensor.")


class CustomQuantizer(Quantizer):
    """A user's function instead of a quantizer: takes a tensor, gives back dequantized values of the same shape."""

    kind = "custom"

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = as_module(function)

    @property
    def threshold(self) -> Tensor:
        """Not known: the function keeps its range to itself."""
        return torch.tensor(float("nan"))

    def forward(self, x: Tensor, tensor: int | None = 0) -> Tensor:
        """Whatever the function makes of ``x``."""
        if self.preprocess is not None:
            x = self.preprocess(x)
        result: Tensor = self.function(x) if self.quantizing else x
        return result

    def integers(self, x: Tensor, how: Stored = SHIFTED) -> tuple[Tensor, Tensor]:
        """The function's values, with a step of 1: they are on no grid that Quaver knows."""
        real = x if how.unit is None else x * how.unit
        return self.forward(real, None).float(), torch.ones((), device=x.device)
