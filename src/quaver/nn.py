"""Small modules for what a model computes without one, so that `quaver.QAT` can quantize it too.

``x + y`` in a forward is nothing that can be found in a live model. ``self.add(x, y)`` with ``self.add = quaver.nn.Add()``
is. Unquantized they are what they are named after.
"""

from torch import Tensor, nn


class Add(nn.Module):
    """``x + y``. Quantized, its operands are rounded; not one that comes straight out of a convolution and goes nowhere
    else, which engines add to before they round. A number is added as it is.
    """

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum."""
        return x + y


class AvgPool2d(nn.AvgPool2d):
    """`torch.nn.AvgPool2d`. Quantized, it averages integers. Let a quantized layer or pool read what it gives: for a plain
    one, OpenVINO rounds that once more, and the live model does not.
    """


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    """`torch.nn.AdaptiveAvgPool2d`. Quantized, it averages integers, as `AvgPool2d` does."""


class MaxPool2d(nn.MaxPool2d):
    """`torch.nn.MaxPool2d`. Quantized, its input is rounded."""


__all__ = ["AdaptiveAvgPool2d", "Add", "AvgPool2d", "MaxPool2d"]
