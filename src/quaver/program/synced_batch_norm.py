"""Batch norm over the batches of all processes, on any device.

torch's own synchronized batch norm runs on accelerators only. On the processor this one takes the very steps of plain batch
norm, with their roundings, so that two processes with half the batch each get the bits that one gets with all of it. That
matters here: rounding to integers follows, where a last bit can become a whole step.
"""

from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable


def synced_batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    group: Any = None,
) -> Tensor:
    """``torch.batch_norm`` in training, with mean and variance over all processes; updates the running statistics.

    ``group``: over the processes of this group, by default all.
    """
    with torch.no_grad():
        mean, var, count = _statistics_in_steps(x, group) if x.device.type == "cpu" else _statistics(x, group)
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((var * (count / (count - 1))).to(running_var.dtype), momentum)
        inverse = (1 / torch.sqrt(var.double() + eps)).float()
    return _Normalize.apply(x, weight, bias, mean, inverse, count, group)  # type: ignore[no-any-return,no-untyped-call]


def _statistics(x: Tensor, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and number of values per channel over all processes, in one exchange."""
    count = _count(x)
    var, mean = (part.double() for part in torch.var_mean(x.float(), _others(x), correction=0))
    together = torch.cat([mean * count, (var + mean.square()) * count, count])
    distributed.all_reduce(together, group=group)
    sums, squares = together[:-1].chunk(2)
    count = together[-1:]
    mean = sums / count
    return mean.float(), (squares / count - mean.square()).clamp_min(0).float(), count.float()


def _statistics_in_steps(x: Tensor, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The same as torch computes it on a processor: sums in double, the mean, deviations and their squares in float."""
    together = torch.cat([x.double().sum(_others(x)), _count(x)])
    distributed.all_reduce(together, group=group)
    sums, count = together[:-1], together[-1:]
    mean = (sums / count).float()
    squares = (x.float() - _wide(mean, x)).square().double().sum(_others(x))
    distributed.all_reduce(squares, group=group)
    return mean, squares.float() / count.float(), count.float()


class _Normalize(torch.autograd.Function):
    """Forward: ``(x − mean)·inverse·weight + bias``. Backward: as if mean and variance were made from all processes' x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        inverse: Tensor,
        count: Tensor,
        group: Any,
    ) -> Tensor:
        ctx.group = group
        ctx.save_for_backward(x, weight, mean, inverse, count)
        factor = inverse if weight is None else inverse * weight.float()
        start = torch.zeros_like(mean) if bias is None else bias.float()
        if x.device.type != "cpu":
            return torch.addcmul(_wide(start - mean * factor, x), x.float(), _wide(factor, x)).to(x.dtype)
        # product and sum in one instruction with one rounding; double precision stands in for that
        shift = (start.double() - mean.double() * factor.double()).float()
        return (x.double() * _wide(factor, x).double() + _wide(shift, x).double()).to(x.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse, count = ctx.saved_tensors
        gradient = gradient.float()
        centred = (x.float() - _wide(mean, x)) * _wide(inverse, x)
        of_bias, of_weight = gradient.sum(_others(x)), (gradient * centred).sum(_others(x))
        together = torch.cat([of_bias, of_weight]).double()
        distributed.all_reduce(together, group=ctx.group)
        mean_gradient, mean_product = (together / count).float().chunk(2)
        factor = inverse if weight is None else inverse * weight.float()
        to_x = (gradient - _wide(mean_gradient, x) - centred * _wide(mean_product, x)) * _wide(factor, x)
        wanted = ctx.needs_input_grad
        return to_x.to(x.dtype), of_weight if wanted[1] else None, of_bias if wanted[2] else None, *[None] * 4


def _others(x: Tensor) -> list[int]:
    """Every axis but the channels'."""
    return [axis for axis in range(x.dim()) if axis != 1]


def _count(x: Tensor) -> Tensor:
    """How many values a channel has here."""
    return torch.tensor([float(x.numel() // x.shape[1])], dtype=torch.float64, device=x.device)


def _wide(values: Tensor, x: Tensor) -> Tensor:
    """One value per channel, in a shape that broadcasts against ``x``."""
    return values.view(1, -1, *[1] * (x.dim() - 2))
