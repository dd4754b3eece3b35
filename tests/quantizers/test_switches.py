"""The four switches: observing and rounding, each on and off."""

import pytest
import torch
from torch import nn

from quaver.quantizers import AbsMax, ChannelWiseAbsMax, MovingAverageAbsMax, Observer, RangeAbsMax
from quaver.quantizers.switches import disable_fake_quant, disable_observer, enable_fake_quant, enable_observer
from samples import assert_same_state, batch, new, state_of

OBSERVING = [AbsMax, MovingAverageAbsMax, RangeAbsMax, Observer]


@pytest.mark.parametrize("rule", OBSERVING)
def test_with_the_observer_off_training_moves_nothing_until_it_is_on_again(rule):
    quantizer = new(rule)
    quantizer(batch(2.0))
    before = state_of(quantizer)

    quantizer.apply(disable_observer)(batch(50.0))
    while_off = state_of(quantizer)
    quantizer.apply(enable_observer)(batch(50.0))

    assert_same_state(while_off, before)
    assert quantizer.threshold > 2.0


@pytest.mark.parametrize("rule", [MovingAverageAbsMax, RangeAbsMax])
def test_with_the_observer_off_from_the_start_values_pass(rule):
    quantizer = new(rule, bits=2)
    quantizer.apply(disable_observer)

    assert torch.equal(quantizer(batch(3.0)), batch(3.0))


@pytest.mark.parametrize("rule", [AbsMax, ChannelWiseAbsMax, MovingAverageAbsMax, RangeAbsMax])
def test_with_fake_quant_off_values_pass_and_ranges_are_still_observed(rule):
    quantizer = new(rule, bits=2)
    quantizer.apply(disable_fake_quant)

    passed = quantizer(batch(3.0))
    integers, scale = quantizer.integers(batch(3.0))
    quantizer.apply(enable_fake_quant)
    rounded = quantizer(batch(3.0))

    assert torch.equal(passed, batch(3.0))
    assert torch.equal(integers * scale, batch(3.0))
    assert quantizer.threshold.amax() == 3.0
    assert not torch.equal(rounded, batch(3.0))


def test_switches_reach_nested_quantizers_and_leave_other_modules_alone():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(MovingAverageAbsMax()))

    model.apply(disable_observer).apply(disable_fake_quant)

    assert (model[1][0].observing, model[1][0].quantizing) == (False, False)
    assert not hasattr(model[0], "observing")
    assert not hasattr(model[0], "quantizing")
