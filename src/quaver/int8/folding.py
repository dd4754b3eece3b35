"""What follows a layer, taken into the step of its weight and its bias: a batch norm, a product or a sum with a constant."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from quaver.graph.nodes import argument
from quaver.graph.patterns import affine
from quaver.int8.kernels import fold_batch_norm


class Fold(NamedTuple):
    """A kernel that gives step and bias of a layer that does a node's work as well, and what it reads beside those two."""

    kernel: Callable[..., tuple[Tensor, Tensor | None]]
    constants: list[Any]


def fold_of(node: fx.Node) -> Fold:
    """How a layer does one of the nodes behind it (`graph.patterns.folded_behind`)."""
    step = affine(node)
    if step is None:
        names = ("weight", "bias", "running_mean", "running_var", "eps")
        return Fold(fold_batch_norm, [argument(node, name) for name in names])
    return Fold(fold_product if step.type == "mul" else fold_sum, [step.constant])


def fold_product(scale: Tensor, bias: Tensor | None, factor: Tensor | float) -> tuple[Tensor, Tensor | None]:
    """Step and bias of a layer whose output is multiplied by a constant, of each channel or of all.

    >>> fold_product(torch.tensor([0.5, 1.0]), None, torch.tensor([[[2.0]], [[3.0]]]))
    (tensor([1., 3.]), None)
    """
    factor = _per_channel(factor, scale)
    return scale * factor, None if bias is None else bias.float() * factor


def fold_sum(scale: Tensor, bias: Tensor | None, shift: Tensor | float) -> tuple[Tensor, Tensor]:
    """Step and bias of a layer to whose output a constant is added, to each channel or to all."""
    shift = _per_channel(shift, scale)
    return scale, shift if bias is None else bias.float() + shift


def _per_channel(constant: Tensor | float, like: Tensor) -> Tensor:
    values = torch.as_tensor(constant, dtype=torch.float32, device=like.device)
    return values.reshape(() if values.numel() == 1 else -1)
