"""Branches on whether a tensor has NaN or Inf in it: a graph takes the side on which it has none.

Models ask this to repair overflow of half floats, in training mostly: ``if not torch.isfinite(x).all(): x = x.clamp(…)``.
What to do next depends on values, which a trace does not have; and int8 has no place for NaN or Inf, so that there is one
answer on which the graph is of use.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

ANSWERS = {"isfinite": True, "isnan": False, "isinf": False, "isposinf": False, "isneginf": False}
"""What these functions give for every value of a tensor that has no NaN or Inf in it."""

COMBINED: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(("all", "any", "bool", "__bool__", "item", "detach"), lambda answer: answer),
    **dict.fromkeys(("logical_not", "bitwise_not", "__invert__"), lambda answer: not answer),
    **dict.fromkeys(("logical_or", "bitwise_or", "__or__"), lambda first, other: first or other),
    **dict.fromkeys(("logical_and", "bitwise_and", "__and__"), lambda first, other: first and other),
}
"""What becomes of such answers, by the function's name; given all answers that it reads."""


class FiniteBranches(TorchFunctionMode):
    """While a model is traced: ``bool`` of what `ANSWERS` gives, and of what is `COMBINED` of it alone, is known."""

    def __init__(self) -> None:
        super().__init__()
        self.answer_of: dict[int, tuple[Tensor, bool]] = {}  # with the tensor, so that its number stays its own

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Do what was asked, and note or give the answer where it is known."""
        name = getattr(func, "__name__", "")
        answer = self._answer(name, args)
        if answer is not None and name in ("__bool__", "item"):
            return answer
        result = func(*args, **(kwargs or {}))
        if answer is not None and isinstance(result, Tensor):
            self.answer_of[id(result)] = (result, answer)
        return result

    def _answer(self, name: str, args: tuple[Any, ...]) -> bool | None:
        if name in ANSWERS:
            return ANSWERS[name]
        if name not in COMBINED:
            return None
        answers = [self.answer_of[id(value)][1] for value in args if id(value) in self.answer_of]
        tensors = sum(isinstance(value, torch.Tensor) for value in args)
        return COMBINED[name](*answers) if answers and len(answers) == tensors else None
