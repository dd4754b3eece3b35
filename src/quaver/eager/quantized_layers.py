"""Layers that compute with quantizers. A live layer becomes one by changing its class, and goes back the same way: its
parameters, its name, its hooks and everybody who holds it stay what they are.

In training they round in float, as the training graph of a program does. In evaluation they compute on integers, with the
kernels that a program's evaluation runs.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import quaver.nn as qnn
from quaver.eager.sign_tracking import CONVOLVED, SignTracker, carry_sign, never_negative
from quaver.errors import QuaverWarning
from quaver.int8 import kernels
from quaver.quantizers import LearnedStep, Quantizer
from quaver.quantizers.arithmetic import dequantize
from quaver.quantizers.kept_integers import multiplying

_SUMS = "_quaver_sums"


LOWEST = "lowest"
"""The buffer of an input's quantizer that has the lowest value seen in training, if that is below 0."""
QUANTIZERS = ("input_quantizer", "weight_quantizer", "input_quantizers")
"""Where layers keep what they were given."""


@dataclass(frozen=True)
class Sums:
    """What a convolution on integers came to before it was rescaled, for a batch norm behind it to rescale once instead.

    ``version`` tells whether somebody wrote into the tensor it belongs to.
    """

    total: Tensor
    x_scale: Tensor | float
    weight_scale: Tensor
    bias: Tensor | None
    channels: int
    version: int


class Swapped(nn.Module):
    """A layer that changed its class."""

    _quaver_class: type[nn.Module]
    """What it was."""
    _quaver_sign_tracker: SignTracker | None = None
    """Who watches its first forward."""
    _quaver_reached: bool = False
    """Whether that came by here."""

    def own(self) -> list[str]:
        """The children that it did not have before."""
        return [name for name in QUANTIZERS if name in self._modules]

    def decide(self, *quantized: tuple[Quantizer, Tensor]) -> None:
        """While the first forward is watched: choose the grid without negative integers for what cannot be negative.

        A layer that is called several times has one grid for all its inputs.
        """
        for quantizer, x in quantized:
            signed = not never_negative(x) or (self._quaver_reached and quantizer.grid.signed)
            quantizer.grid = replace(quantizer.grid, signed=signed)
        self._quaver_reached = True

    def rounded(self, quantizer: Quantizer, x: Tensor) -> Tensor:
        """``x`` through its quantizer, in training."""
        if not quantizer.grid.signed and x.numel():
            lowest = quantizer.get_buffer(LOWEST)
            lowest.copy_(torch.fmin(lowest, x.detach().amin()))  # fmin: what is NaN is not negative
        result: Tensor = quantizer(x)
        return result if self._quaver_sign_tracker is None else carry_sign(x, result)

    def train(self, mode: bool = True) -> "Swapped":
        """As any module. Between training and evaluation there is time to ask for negative values."""
        super().train(mode)
        self.look_below_zero()
        return self

    def look_below_zero(self) -> None:
        """Back to the grid with negative integers where training has met negative values that the first forward had not.

        Asked here, and not at each step: the answer makes the processor wait for the accelerator.
        """
        for quantizer in self.modules():
            if isinstance(quantizer, Quantizer) and not quantizer.grid.signed and quantizer.get_buffer(LOWEST) < 0:
                allow_negative(quantizer)


def allow_negative(quantizer: Quantizer) -> None:
    """Let a quantizer have negative integers again, over the same range."""
    positive = quantizer.grid
    quantizer.grid = replace(positive, signed=True)
    if isinstance(quantizer, LearnedStep):
        quantizer.step.data.mul_(positive.high / quantizer.grid.high)
    warnings.warn(
        f"{quantizer.tensor!r} has negative values, down to {quantizer.get_buffer(LOWEST):.4g}, and had none in the first "
        "forward. So far they were rounded to 0; from now on it has negative integers. Train on, so that range and weights "
        "get used to it.",
        QuaverWarning,
        stacklevel=2,
    )


class Weighted(Swapped):
    """A convolution or linear layer: ``op(fq(x), fq(w)) + bias``."""

    input_quantizer: Quantizer | None
    weight_quantizer: Quantizer

    def computed(
        self,
        operation: Callable[..., Tensor],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        channels: int,
        arguments: tuple[Any, ...] = (),
    ) -> Tensor:
        """The op, in float in training, on integers in evaluation."""
        quantizer = self.input_quantizer
        if self._quaver_sign_tracker is not None and quantizer is not None:
            self.decide((quantizer, x))
        if self.training:
            given = x if quantizer is None else self.rounded(quantizer, x)
            result = multiplying(operation, given, self.weight_quantizer(weight), bias, *arguments)
        else:
            result = self.on_integers(operation, x, weight, bias, channels, arguments)
        if self._quaver_sign_tracker is not None:
            setattr(result, CONVOLVED, True)
        return result

    def on_integers(
        self, operation: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, channels: int, arguments: Any
    ) -> Tensor:
        """As an engine does it."""
        whole, x_scale = (x.float(), 1.0) if self.input_quantizer is None else self.input_quantizer.integers(x)
        integers, scale = self.weight_quantizer.integers(weight)
        with torch.autocast(x.device.type, enabled=False):
            total = operation(whole, integers, None, *arguments)
            result = kernels.rescale(total, x_scale, scale, bias, channels).to(x.dtype)
        if not torch.compiler.is_compiling():
            setattr(result, _SUMS, Sums(total, x_scale, scale, bias, channels, result._version))
        return result


class _Conv(Weighted):
    operation: Callable[..., Tensor]

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        layer: Any = self
        padding = layer.padding
        if layer.padding_mode != "zeros":
            x = F.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
            padding = 0
        channels = 1 if x.dim() == weight.dim() else 0
        arguments = (layer.stride, padding, layer.dilation, layer.groups)
        return self.computed(type(self).operation, x, weight, bias, channels, arguments)


class Conv1d(_Conv):
    """A 1-d convolution."""

    operation = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """A 2-d convolution, depthwise or not."""

    operation = staticmethod(F.conv2d)


class ConvTranspose2d(Weighted):
    """A transposed convolution."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """As the class it stands for."""
        layer: Any = self
        spatial = [layer.stride, layer.padding, layer.kernel_size]
        extra = layer._output_padding(input, output_size, *spatial, 2, layer.dilation)
        arguments = (layer.stride, layer.padding, extra, layer.groups, layer.dilation)
        channels = 1 if input.dim() == layer.weight.dim() else 0
        return self.computed(F.conv_transpose2d, input, layer.weight, layer.bias, channels, arguments)


class Linear(Weighted):
    """A linear layer."""

    def forward(self, input: Tensor) -> Tensor:
        """As the class it stands for."""
        layer: Any = self
        return self.computed(F.linear, input, layer.weight, layer.bias, -1)


class BatchNorm(Swapped):
    """A batch norm that in evaluation rescales the sums of the convolution before it, instead of what it made of them.

    It is the order in which an engine, and a frozen program, compute: one product and one sum per channel.
    """

    def forward(self, input: Tensor) -> Tensor:
        """As the class it stands for, to the last bit but one."""
        layer: Any = self
        convolved = hasattr(input, CONVOLVED)
        sums: Sums | None = None
        if not (self.training or torch.compiler.is_compiling() or layer.running_mean is None):
            sums = getattr(input, _SUMS, None)
        if sums is not None and sums.version == input._version and _fits(sums, layer):
            statistics = (layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps)
            scale, bias = kernels.fold_batch_norm(sums.weight_scale, sums.bias, *statistics)
            result = kernels.rescale(sums.total, sums.x_scale, scale, bias, sums.channels).to(input.dtype)
        else:
            result = super().forward(input)
        if self._quaver_sign_tracker is not None and convolved:
            setattr(result, CONVOLVED, True)
        return result


def _fits(sums: Sums, layer: Any) -> bool:
    """Whether each channel of the batch norm is one of the weight's steps, or there is but one step."""
    # a batch norm of (N, L, C) normalizes L, a linear layer's channels are C
    channels_in_front = sums.channels == 1 or sums.total.dim() == 2
    return channels_in_front and sums.weight_scale.numel() in (1, layer.num_features)


class Pool(Swapped):
    """A pool of rounded values."""

    input_quantizer: Quantizer
    averages = True

    def forward(self, input: Tensor) -> Tensor:
        """As the class it stands for, of rounded values."""
        quantizer = self.input_quantizer
        if self._quaver_sign_tracker is not None:
            self.decide((quantizer, input))
        if self.training:
            return super().forward(self.rounded(quantizer, input))  # type: ignore[no-any-return]
        whole, scale = quantizer.integers(input)
        if self.averages:
            return super().forward(whole) * scale  # type: ignore[no-any-return]
        return super().forward(carry_sign(input, dequantize(whole, scale)))  # type: ignore[no-any-return]


class MaxPool(Pool):
    """A max pool."""

    averages = False


class Add(Swapped):
    """A sum of rounded values, but for an operand that comes straight out of a convolution and goes nowhere else."""

    input_quantizers: nn.ModuleList
    _quaver_raw: int | None = None
    """Which operand that is."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum; with a number, the plain one."""
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
            return x + y
        operands: list[Any] = [x, y]
        quantizers: list[Any] = list(self.input_quantizers)
        if self._quaver_sign_tracker is not None:
            convolved = [k for k, value in enumerate(operands) if hasattr(value, CONVOLVED)]
            self._quaver_raw = convolved[0] if convolved and x is not y else None
            self.decide(*zip(quantizers, operands, strict=True))
        raw = self._quaver_raw
        if self.training:
            left, right = (value if k == raw else self.rounded(quantizers[k], value) for k, value in enumerate(operands))
            return left + right  # type: ignore[no-any-return]
        if raw is None:
            left, right = (
                dequantize(*quantizer.integers(value)) for quantizer, value in zip(quantizers, operands, strict=True)
            )
            return left + right  # type: ignore[no-any-return]
        other = quantizers[1 - raw]
        whole, scale = other.integers(operands[1 - raw])
        return dequantize(kernels.added(operands[raw], whole, scale, other.grid.signed), scale)


WEIGHTED: dict[type[nn.Module], type[Weighted]] = {
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.Linear: Linear,
}
POOLS: dict[type[nn.Module], type[Pool]] = {
    nn.AvgPool2d: Pool,
    nn.AdaptiveAvgPool2d: Pool,
    nn.MaxPool2d: MaxPool,
}
ROUNDING: dict[type[nn.Module], type[Swapped]] = {**WEIGHTED, **POOLS, qnn.Add: Add}
"""The layers that get quantizers."""
KINDS: dict[type[nn.Module], type[Swapped]] = {**ROUNDING, nn.BatchNorm1d: BatchNorm, nn.BatchNorm2d: BatchNorm}
"""What stands for a layer of each class, or of one derived from it."""


def kind_of(layer: nn.Module) -> type[nn.Module] | None:
    """The class in `KINDS` that a layer is of, or derived from."""
    return next((kind for kind in KINDS if isinstance(layer, kind)), None)


def taken_name(layer: nn.Module, layer_class: type[nn.Module]) -> str:
    """An attribute of a layer whose name the quantized layer that stands for it needs; empty where there is none."""
    needed = [name for kind in KINDS[layer_class].__mro__ if issubclass(kind, Swapped) for name in vars(kind)]
    needed = [name for name in needed if not name.startswith("_") and not hasattr(layer_class, name)]
    return next((name for name in (*QUANTIZERS, *needed) if hasattr(layer, name)), "")


def swap(layer: nn.Module, kind: type[nn.Module], quantizers: dict[str, nn.Module | None]) -> None:
    """Let a layer of class ``known`` compute with these quantizers."""
    for name, quantizer in quantizers.items():
        layer.register_module(name, quantizer)
    layer.__dict__["_quaver_class"] = type(layer)
    layer.__class__ = swapped_class((KINDS[kind], type(layer)))


def swap_back(layer: Swapped) -> None:
    """Make a layer what it was."""
    for name in layer.own():
        del layer._modules[name]
    layer.__class__ = layer._quaver_class  # type: ignore[assignment]
    for name in ("_quaver_class", "_quaver_sign_tracker", "_quaver_reached", "_quaver_raw"):
        layer.__dict__.pop(name, None)


@cache
def swapped_class(bases: tuple[type[Swapped], type[nn.Module]]) -> type[Swapped]:
    """The class of a layer that computes with quantizers: of one of these kinds, and of the class it had."""
    kind, of = bases
    return type(f"Quantized{of.__name__}", (kind, of), {"__module__": of.__module__, "__reduce_ex__": _reduced})


def _reduced(self: Any, protocol: int) -> Any:
    """A class made on the spot is pickled by what it was made of."""
    return _revived, (type(self).__mro__[1], self._quaver_class), self.__dict__


def _revived(kind: type[Swapped], of: type[nn.Module]) -> nn.Module:
    return object.__new__(swapped_class((kind, of)))
