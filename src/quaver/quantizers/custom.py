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


def as_module(function: Any, tensor: str = "") -> nn.Module:
    """A module of the tensor's own: a class is called, a module copied, a plain function wrapped.

    A module that has a method ``for_tensor(name)`` is asked for the one to use.
    """
    if inspect.isclass(function) and issubclass(function, nn.Module):
        module = function()
    elif isinstance(function, nn.Module):
        module = copy.deepcopy(function)
    elif callable(function):
        return _Function(function)
    else:
        raise ConfigError(
            f"{function!r}: a custom function is an nn.Module class, an nn.Module, or a function of one tensor."
        )
    return module.for_tensor(tensor) if hasattr(module, "for_tensor") else module  # type: ignore[no-any-return,operator]


class CustomQuantizer(Quantizer):
    """A user's function instead of a quantizer: takes a tensor, gives back dequantized values of the same shape."""

    kind = "custom"

    def __init__(self, function: Any, tensor: str = "") -> None:
        super().__init__()
        self.tensor = tensor
        self.function = as_module(function, tensor)

    @property
    def own_threshold(self) -> Tensor:
        """Not known: the function keeps its range to itself."""
        return torch.tensor(float("nan"))

    def forward(self, x: Tensor, tensor: int | None = 0) -> Tensor:
        """Whatever the function makes of ``x``."""
        x = self.preprocessed(x)
        return self.called(self.function, x, "quantize function") if self.quantizing else x

    def integers(self, x: Tensor, how: Stored = SHIFTED) -> tuple[Tensor, Tensor]:
        """The function's values, with a step of 1: they are on no grid that Quaver knows."""
        real = x if how.unit is None else x * how.unit
        return self.forward(real, None).float(), torch.ones((), device=x.device)
