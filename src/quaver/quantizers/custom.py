"""A user's own function in the place of a quantizer, or in front of one."""

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from quaver.errors import ConfigError
from quaver.quantizers.arithmetic import StorageFormat
from quaver.quantizers.learned_step import LearnedStep
from quaver.quantizers.on_grid import CLOSE, OffGridError, common_step, staircase
from quaver.quantizers.quantizer import SHIFTED, Common, FixedStep, Quantizer

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

    A `functools.partial` of a class is called as a class is. A module that has a method ``for_tensor(name)`` is asked for
    the one to use.
    """
    place = f"{tensor!r}: " if tensor else ""
    maker = function.func if isinstance(function, functools.partial) else function
    module: Any
    if inspect.isclass(maker) and issubclass(maker, nn.Module):
        module = _made(function, place, maker.__name__)
    elif isinstance(function, nn.Module):
        module = copy.deepcopy(function)
    elif callable(function):
        return _Function(function)
    else:
        raise ConfigError(
            f"{place}{function!r}: a custom function is an nn.Module class, an nn.Module, or a function of one tensor."
        )
    if hasattr(module, "for_tensor"):
        kind, module = type(module).__name__, module.for_tensor(tensor)
        if not isinstance(module, nn.Module):
            raise ConfigError(f"{place}{kind}.for_tensor gave back {type(module).__name__}, not an nn.Module.")
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        raise ConfigError(f"{place}{type(module).__name__} has no forward to call with the tensor.")
    return module  # type: ignore[no-any-return]


def _made(make: Any, place: str, name: str) -> Any:
    try:
        return make()
    except Exception as error:  # whatever a user's class raises
        raise ConfigError(
            f"{place}{name} could not be made: {type(error).__name__}: {error}. A class is called without arguments, once "
            f"for every tensor. Where it needs some, give functools.partial({name}, …) or a module, which is copied."
        ) from error


class CustomQuantizer(Quantizer):
    """A user's function instead of a quantizer: takes a tensor, gives back dequantized values of the same shape.

    What it gives may lie on an integer grid. Then evaluation computes on these integers, and it is frozen as the plain
    quantizer that `plain_weight` or `plain_activation` finds (an engine's grid, ``narrow=False``, is an activation's).

    With ``pairs``, filters of a weight whose products would overflow 16 bits are rounded once more, to a wider step, in
    training and in evaluation alike.
    """

    kind = "custom"

    def __init__(
        self, function: Any, tensor: str = "", bits: int = 8, axis: int | None = None, **options: Unpack[Common]
    ) -> None:
        super().__init__(bits, **options)
        self.tensor = tensor
        self.axis = axis
        self.function = as_module(function, tensor)

    @property
    def own_threshold(self) -> Tensor:
        """Not known: the function keeps its range to itself."""
        return torch.tensor(float("nan"))

    def forward(self, x: Tensor, tensor: int | None = 0) -> Tensor:
        """Whatever the function makes of ``x``."""
        x = self.preprocessed(x)
        if not self.quantizing:
            return x
        values = self.called(self.function, x, "quantize function")
        return values if self.clamped_axis is None else self.without_overflow(values, self.clamped_axis)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def without_overflow(self, values: Tensor, axis: int) -> Tensor:
        """``values``, those filters in wider steps whose neighbours along ``axis`` would overflow; the gradient stays."""
        given = values.detach().float()
        try:
            step = common_step(given, self.axis, self.grid)
        except OffGridError:  # `quaver.convert` says so
            return values
        wider = self.with_neighbours(step * self.grid.high, given) / self.grid.high
        steps = self.per_channel(wider, given)
        overflows = self.per_channel(wider > (1 + CLOSE) * step, given)  # a sum of 129 is 1/128 beyond, float rounding less
        rounded = torch.where(overflows, (given / steps).round() * steps, given)
        return values + (rounded - given).to(values.dtype)

    def integers(self, x: Tensor, how: StorageFormat = SHIFTED) -> tuple[Tensor, Tensor]:
        """Integers and the step, if the function's values lie on a grid; its values and a step of 1 if they do not."""
        values = self.forward(x if how.unit is None else x * how.unit, None).float()
        if self.quantizing and not torch.compiler.is_compiling():
            try:
                if self.grid.narrow:
                    return self.plain_weight(values).integers(values)
                whole, scale = self.plain_activation(x.dim(), x.device).integers(x.detach(), how)
            except OffGridError:
                pass
            else:  # rounded as an engine rounds; the gradient is the function's
                return whole + (values - values.detach()) / scale if values.requires_grad else whole, scale
        return values, torch.ones((), device=x.device)

    def plain_weight(self, values: Tensor) -> LearnedStep:
        """A plain quantizer that leaves ``values``, which the function made of a weight, as they are."""
        step = common_step(values.detach(), self.axis, self.grid)
        quantizer = LearnedStep(self.grid.bits, None if self.axis is None else self.axis % values.dim())
        quantizer.step.data = step
        quantizer.known.fill_(True)
        quantizer.observing, quantizer.pass_through = False, True
        return quantizer.to(values.device).eval()

    def plain_activation(self, rank: int, device: torch.device) -> FixedStep:
        """A plain quantizer that does what the function does to a tensor of this rank."""
        parts = [part for part in (self.preprocess, self.function) if part is not None]
        step, bounds = staircase(nn.Sequential(*parts), self.grid, rank, device)
        return FixedStep(step, replace(self.grid, bounds=bounds)).to(device)

    def options(self) -> dict[str, Any]:
        """As the base class, and the axis."""
        return super().options() | {"axis": self.axis}
