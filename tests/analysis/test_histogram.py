"""Everything is read off a histogram whose bins follow the exponent: compared here with the values themselves."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver.analysis.histogram import Counts, Histogram
from quaver.grid import Grid
from quaver.quantizers.arithmetic import dequantize, quantize

SAMPLES = {
    "normal": lambda: torch.randn(200_000, generator=torch.Generator().manual_seed(0)),
    "relu": lambda: torch.randn(200_000, generator=torch.Generator().manual_seed(1)).relu(),
    "outliers": lambda: torch.cat([SAMPLES["normal"](), torch.tensor([900.0, -4000.0])]),
    "tiny": lambda: SAMPLES["normal"]() * 1e-9,
}


def histogram(values: torch.Tensor) -> Histogram:
    counts = Counts()
    counts.add(values)
    return counts.done(float(values.min()), float(values.max()))


@pytest.fixture(params=SAMPLES)
def values(request):
    return SAMPLES[request.param]()


def test_percentiles_are_those_of_the_values(values):
    shares = (50.0, 90.0, 99.0, 99.9)

    found = histogram(values).percentiles(shares)

    expected = np.percentile(values.abs().numpy(), shares)
    np.testing.assert_allclose(found, expected, rtol=0.01, atol=1e-4 * expected[-1])  # a bin is 0.8 % wide


def test_zeros_are_counted_exactly():
    found = histogram(torch.tensor([0.0, -0.0, 1.0, -2.0, 0.0]))

    assert (found.zeros, found.total) == (3, 5)
    assert found.percentiles((50.0,)) == [0.0]


@pytest.mark.parametrize("bits", [8, 3])
def test_what_saturates_lies_half_a_step_beyond_the_grid(values, bits):
    grid = Grid(bits, signed=bool((values < 0).any()), narrow=False)
    threshold = float(values.abs().quantile(0.97))
    steps = values / (threshold / grid.high)

    found = histogram(values).saturated(threshold, grid)

    exact = float(((steps > grid.high + 0.5) | (steps < grid.low - 0.5)).float().mean())
    assert found == pytest.approx(exact, rel=0.03)


def test_many_values_exactly_at_the_end_do_not_saturate():
    pixels = torch.tensor([-1.0, 0.3, 1.0]).repeat(1000)

    assert histogram(pixels).saturated(0.99999, Grid(8, narrow=False)) == 0


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("share", [1.0, 0.7, 0.3])
def test_noise_is_what_rounding_and_clipping_cost(values, bits, share):
    grid = Grid(bits, signed=bool((values < 0).any()), narrow=False)
    threshold = share * float(values.abs().quantile(0.9999))
    step = torch.tensor(threshold / grid.high)

    found = histogram(values).noise(threshold, grid)

    exact = (dequantize(quantize(values, step, grid), step) - values).double().square().sum()
    assert found == pytest.approx(float(exact), rel=0.02)


def test_the_best_threshold_costs_no_more_than_any_other(values):
    grid, seen = Grid(4, narrow=False), histogram(values)
    largest = float(values.abs().max())

    best = seen.best_threshold(largest, grid)

    others = [seen.noise(largest * share, grid) for share in np.linspace(0.002, 1, 500)]
    assert seen.noise(best, grid) <= 1.001 * min(others)  # without the second, finer look it is 1.003
    assert 0 < best <= largest


def test_even_bins_hold_every_value_once(values):
    seen = histogram(values)
    low, high = min(float(values.min()), 0.0), float(values.max())

    bins = seen.even_bins(low, high, 50)

    expected = np.histogram(values.numpy(), bins=50, range=(low, high))[0]
    assert abs(sum(bins) - values.numel()) <= 25  # each of 50 bins is a whole number
    assert np.abs(np.array(bins) - expected).max() <= 0.02 * values.numel()


def test_what_comes_in_parts_is_what_comes_at_once(values):
    parts = Counts()
    for part in values.split(1000):
        parts.add(part)

    found, expected = parts.done(float(values.min()), float(values.max())), histogram(values)

    assert np.array_equal(found.counts, expected.counts)
    assert found.power == pytest.approx(expected.power)


def test_a_histogram_of_nothing_says_nothing():
    empty = Counts().done(0.0, 0.0)

    assert empty.percentiles((50.0,)) == [0.0]
    assert empty.saturated(1.0, Grid(8)) == 0
    assert empty.noise(1.0, Grid(8)) == 0
    assert empty.best_threshold(1.0, Grid(8)) == 1
    assert empty.even_bins(0.0, 1.0, 4) == [0, 0, 0, 0]


@settings(max_examples=50)
@given(exponent=st.floats(-9, 6), share=st.floats(1, 99))
def test_resolution_is_the_same_at_every_magnitude(exponent, share):
    values = torch.linspace(0.1, 1, 2001) * 10**exponent

    (found,) = histogram(values).percentiles((share,))

    assert found == pytest.approx((0.1 + 0.9 * share / 100) * 10**exponent, rel=0.01)
