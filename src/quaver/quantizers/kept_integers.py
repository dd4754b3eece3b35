"""What backward keeps of a rounded tensor: its integers, of one byte each, and not the values that they stand for.

A quantizer that has rounded a tensor puts the integers beside it (`keep`). Layers that read it are called by `reading`: what
autograd saves of the tensor for them are the integers, once for all of its readers, and backward multiplies them with the
step again. These are the values to the last bit, but for the sign of a zero.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from quaver.errors import ConfigError
from quaver.grid import Grid
from quaver.quantizers import fused
from quaver.quantizers.eager_calls import is_eager

SWITCH = "QUAVER_KEEP_INTEGERS"
_KEPT = "_quaver_kept"


class Kept(NamedTuple):
    """Integers, the step they are counted in, and the tensor that comes of them: its dtype, and its version if untouched."""

    integers: Tensor
    scale: Tensor
    dtype: torch.dtype
    version: int = 0

    def values(self) -> Tensor:
        """The tensor, laid out as it was."""
        if self.scale.numel() == 1 and fused.suits(self.scale) and self.integers.numel() < fused.MOST:
            from quaver.quantizers.fused.launches import values_of  # needs Triton

            return values_of(self.integers, self.scale, self.dtype)
        return self.integers.to(torch.float32).mul_(self.scale).to(self.dtype)


class _View(NamedTuple):
    """A view of such a tensor."""

    kept: Kept
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def values(self) -> Tensor:
        return self.kept.values().as_strided(self.size, self.stride, self.offset)


def are_wanted() -> bool:
    """Whether a tensor that is rounded now is worth its integers: gradients are, and nobody else decides what is saved.

    Whoever has hooks of their own on what autograd saves (activation checkpointing, offloading) sees the tensors themselves.
    """
    return torch.is_grad_enabled() and not saving_is_hooked() and switched_on()


def saving_is_hooked() -> bool:
    """Whether somebody has hooks on what autograd saves, or has forbidden any."""
    graph: Any = torch._C._autograd
    return not graph._saved_tensors_hooks_is_enabled() or graph._top_saved_tensors_default_hooks(False) is not None


def switched_on() -> bool:
    """What the environment says. Off, where it says nothing: it saves memory, and takes a few per cent of a step."""
    said = os.environ.get(SWITCH, "0")
    if said not in ("0", "1"):
        raise ConfigError(f"{SWITCH}={said!r} in the environment: 0 keeps float tensors for backward, 1 their integers.")
    return said == "1"


def integer_type(grid: Grid) -> torch.dtype | None:
    """What the integers of a grid fit into: one byte, or nothing (an asymmetric grid)."""
    if grid.low >= 0:
        return torch.uint8
    return torch.int8 if grid.high <= 127 else None


class Integers:
    """The integers that a tensor is rounded to on the CPU, on their way out of an autograd.Function, if they are wanted."""

    def __init__(self, x: Tensor, grid: Grid) -> None:
        self.dtype = integer_type(grid) if x.is_cpu and is_eager(x) and are_wanted() else None
        self.taken: Tensor | None = None

    def take(self, whole: Tensor) -> None:
        """Take them as floats; with NaN among them, which no integer stands for, they are left."""
        if self.dtype is not None and not whole.sum().isnan():
            self.taken = whole.to(self.dtype)


def keep(value: Tensor, integers: Tensor | None, scale: Tensor) -> Tensor:
    """``value``, with the integers beside it that it was made of."""
    if integers is not None:
        setattr(value, _KEPT, Kept(integers, scale.detach(), value.dtype, value._version))
    return value


def reading(op: Callable[..., Tensor], *operands: Any, **options: Any) -> Tensor:
    """``op(*operands)``, keeping the integers of operands that have some for backward."""
    if torch.compiler.is_compiling() or all(_kept(value) is None for value in operands):
        return op(*operands, **options)
    with saved_tensors_hooks(_packed, _unpacked):
        return op(*operands, **options)


def multiplying(op: Callable[..., Tensor], x: Tensor, *others: Any, **options: Any) -> Tensor:
    """`reading` for convolutions and products of matrices: under autocast they read a copy in another dtype."""
    if torch.compiler.is_compiling() or all(_kept(value) is None for value in (x, *others)):
        return op(x, *others, **options)
    if not torch.is_autocast_enabled(x.device.type):
        return reading(op, x, *others, **options)
    dtype = torch.get_autocast_dtype(x.device.type)  # the same cast, where it can be seen
    return reading(op, *(_cast(value, dtype) for value in (x, *others)), **options)


def _kept(value: Any) -> Kept | None:
    """The integers beside a tensor, or beside what it is a view of, if it is as it was."""
    if not isinstance(value, Tensor):
        return None
    kept: Kept | None = getattr(value._base if value._is_view() else value, _KEPT, None)  # type: ignore[no-untyped-call]
    return kept if kept is not None and value._version == kept.version else None


def _cast(value: Any, dtype: torch.dtype) -> Any:
    kept = _kept(value)
    if kept is None or value.dtype != torch.float32 or value._is_view():
        return value
    return keep(value.to(dtype), kept.integers, kept.scale)


def _packed(value: Tensor) -> Any:
    kept = _kept(value)
    if kept is None:
        return value, value._version
    if not value._is_view():  # type: ignore[no-untyped-call]
        return kept
    return _View(kept, value.shape, value.stride(), int(value.storage_offset()))


def _unpacked(packed: Any) -> Tensor:
    if isinstance(packed, Kept | _View):
        return packed.values()
    value, version = packed
    if value._version != version:  # torch asks this itself where there are no hooks
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"{value.dtype} {list(value.shape)} is at version {value._version}; expected version {version} instead."
        )
    return value  # type: ignore[no-any-return]
