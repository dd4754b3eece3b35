"""What the tests of the range rules share."""

import torch
from torch import Tensor, nn

from quaver.quantizers import RangeAbsMax


def batch(largest: float) -> Tensor:
    """A tensor with ``max|x| = largest``, reached on the negative side, and values between the steps of a 4-bit grid."""
    return torch.tensor([[-1.0, 0.3, 0.11], [0.62, -0.47, 0.0]]) * largest


def new(rule, **options):
    """A quantizer; a short window where there is one, so that tests see its state whole."""
    return rule(**({"window_size": 8} if rule is RangeAbsMax else {}), **options)


def state_of(quantizer: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in quantizer.named_buffers()}


def assert_same_state(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
