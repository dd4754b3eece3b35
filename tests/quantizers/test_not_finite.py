"""NaN, infinity and empty batches: none of them may spoil a range."""

import copy

import pytest
import torch

from quaver.quantizers import AbsMax, MovingAverageAbsMax, Observer, RangeAbsMax
from samples import assert_same_state, batch, new, state_of

OBSERVING = [AbsMax, MovingAverageAbsMax, RangeAbsMax, Observer]


@pytest.mark.parametrize("rule", OBSERVING)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_batch_that_is_not_finite_is_counted_and_does_not_move_the_threshold(rule, value):
    quantizer = new(rule)
    quantizer(batch(2.0))
    before = copy.deepcopy(quantizer.state_dict())
    spoiled = batch(50.0)
    spoiled[0, 1] = value

    for _ in range(3):
        quantizer(spoiled)

    assert quantizer.nonfinite == 3
    assert_same_state(dict(quantizer.state_dict()), dict(before))


@pytest.mark.parametrize("rule", OBSERVING)
def test_a_finite_batch_is_not_counted(rule):
    quantizer = new(rule)
    quantizer(batch(float("nan")))

    quantizer(batch(2.0))

    assert quantizer.threshold == 2.0
    assert quantizer.nonfinite == 1


@pytest.mark.parametrize("rule", [AbsMax, MovingAverageAbsMax, RangeAbsMax])
def test_in_training_one_bad_value_leaves_the_others_on_the_old_grid(rule):
    quantizer = new(rule, bits=4)
    expected = quantizer(batch(2.0))
    spoiled = batch(2.0)
    spoiled[0, 0] = torch.nan

    rounded = quantizer(spoiled)

    assert rounded[0, 0].isnan()
    assert torch.equal(rounded.flatten()[1:], expected.flatten()[1:])


@pytest.mark.parametrize("rule", [AbsMax, MovingAverageAbsMax, RangeAbsMax])
def test_a_first_batch_that_is_not_finite_is_nan_for_all_to_see_and_the_next_one_is_well(rule):
    quantizer = new(rule)
    spoiled = batch(2.0)
    spoiled[0, 0] = torch.inf

    result = quantizer(spoiled)

    assert result.isnan().all()  # there is no grid to round to, and no batch before it to take one from
    assert quantizer(batch(2.0)).isfinite().all()
    assert quantizer.threshold == 2.0


@pytest.mark.parametrize("rule", OBSERVING)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_an_empty_batch_is_harmless(rule, training, signed):
    quantizer = new(rule, signed=signed)
    quantizer(batch(2.0))
    before = state_of(quantizer)
    empty = torch.zeros(0, 3, requires_grad=True)

    result = quantizer.train(training)(empty)

    result.sum().backward()
    assert result.shape == (0, 3)
    assert_same_state(state_of(quantizer), before)
