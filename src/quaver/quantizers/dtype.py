"""What must stay float32 whatever the model around it is cast to."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def keeping_dtype(fn: Callable[[Tensor], Tensor]) -> Any:
    """``fn`` of ``.to()``, ``.half()`` and the like, for tensors that follow to a device but are not to be rounded."""

    def moved(tensor: Tensor) -> Tensor:
        result = fn(tensor)
        return result if result.dtype == tensor.dtype else tensor.to(result.device)

    return moved
