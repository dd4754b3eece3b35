"""One quantizer for several tensors that must share a range."""

import pytest
import torch
from torch import Tensor

from quaver.quantizers import AbsMax, MovingAverageAbsMax, Observer, RangeAbsMax

OBSERVING = [AbsMax, MovingAverageAbsMax, RangeAbsMax, Observer]


def batch(largest: float) -> Tensor:
    """A tensor with ``max|x| = largest``, reached on the negative side, and values between the steps of a 4-bit grid."""
    return torch.tensor([[-1.0, 0.3, 0.11], [0.62, -0.47, 0.0]]) * largest


def new(rule, **options):
    """A quantizer; a short window where there is one, so that tests see its state whole."""
    return rule(**({"window_size": 8} if rule is RangeAbsMax else {}), **options)


@pytest.mark.parametrize("rule", OBSERVING)
def test_the_threshold_of_two_tensors_is_the_larger_and_neither_dilutes_the_other(rule):
    shared, large_alone = new(rule, tensors=2), new(rule)

    for large, small in ((8.0, 1.0), (6.0, 0.5), (4.0, 2.0)):
        shared(batch(large), 0)
        shared(batch(small), 1)
        large_alone(batch(large))

    assert shared.threshold == large_alone.threshold


@pytest.mark.parametrize("rule", OBSERVING)
def test_the_second_tensor_can_be_the_one_that_sets_the_range(rule):
    quantizer = new(rule, tensors=2)

    quantizer(batch(1.0), 0)
    quantizer(batch(8.0), 1)

    assert quantizer.threshold == 8.0


@pytest.mark.parametrize("rule", [AbsMax, MovingAverageAbsMax, RangeAbsMax])
def test_the_smaller_of_two_tensors_is_rounded_on_the_grid_of_the_larger(rule):
    quantizer = new(rule, bits=2, tensors=2)

    quantizer(batch(8.0), 0)
    rounded = quantizer(batch(1.0), 1)

    assert torch.equal(rounded, torch.zeros(2, 3))  # with 2 bits the grid is -8, 0, 8
