"""Gradients of what is computed as an engine computes it: torch's own, of the same function."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Tensor]


def with_gradient_of(as_torch: Function, as_engine: Function, *operands: Tensor | None) -> Tensor:
    """A function of tensors as an engine computes it, with the gradient of the same function as torch computes it."""
    with torch.autocast("cuda" if operands[0].is_cuda else "cpu", enabled=False):  # type: ignore[union-attr]
        if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in operands):
            return _WithGradient.apply(as_torch, as_engine, *operands)  # type: ignore[no-any-return,no-untyped-call]
        return as_engine(*operands)


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, as_torch: Function, as_engine: Function, *operands: Tensor | None) -> Tensor:
        ctx.as_torch = as_torch
        ctx.save_for_backward(*operands)
        return as_engine(*operands)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            operands: list[Any] = [one if one is None else one.view_as(one) for one in ctx.saved_tensors]
            result = ctx.as_torch(*operands)
        wanted = [one for one, needed in zip(operands, ctx.needs_input_grad[2:], strict=True) if needed]
        found = iter(torch.autograd.grad(result, wanted, gradient, create_graph=torch.is_grad_enabled()))
        return None, None, *(next(found) if needed else None for needed in ctx.needs_input_grad[2:])
