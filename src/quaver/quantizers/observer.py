"""Watch a tensor's range without rounding it."""

import torch
from torch import Tensor

from quaver.quantizers.moving_average_abs_max import MovingAverageAbsMax


class Observer(MovingAverageAbsMax):
    """A moving average of max|x| for tensors that stay unrounded here but that another engine rounds."""

    kind = "observer"

    def forward(self, x: Tensor, tensor: int | None = 0) -> Tensor:
        """``x`` itself."""
        if self.training and self.observing and tensor is not None:
            with torch.no_grad():
                if self.observed_scale(x, tensor) is None:
                    self.observe(x, tensor)
        return x
