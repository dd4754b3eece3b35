"""What must stay float32 whatever the model around it is cast to."""

from typing import Any, Self

from torch import Tensor, nn


class StaysFloat32(nn.Module):
    """Follows ``.to(device)`` but keeps its dtype: ``.half()`` on a model must not round thresholds.

    Its children are users' functions, and go with the model.
    """

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        for child in self.children():
            child._apply(fn)  # type: ignore[no-untyped-call]

        def moved(tensor: Tensor) -> Tensor:
            result: Tensor = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        return super()._apply(moved, recurse=False)  # type: ignore[no-any-return,no-untyped-call]
