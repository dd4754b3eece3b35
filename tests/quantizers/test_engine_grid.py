"""Laws of the grid that engines keep activations on: steps of 16 significant bits, rounding in the engine's own steps."""

from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis.strategies import booleans, builds, floats, integers, just, lists
from torch import Tensor

from quaver.grid import Grid
from quaver.quantizers.arithmetic import (
    Norm,
    StorageFormat,
    as_stored,
    dequantize,
    integers_with_gradient,
    quantize,
    scale_of,
)

law = settings(max_examples=100)
hows = builds(StorageFormat, shifted=booleans())
engine_grids = builds(Grid, bits=integers(2, 8), signed=booleans(), narrow=just(False))
signed_grids = builds(Grid, bits=integers(2, 8), narrow=just(False))
eight_bits = builds(Grid, signed=booleans(), narrow=just(False))
thresholds = floats(2**-60, 2**60, width=32).map(torch.tensor)
# multiples of the threshold, a few of them beyond it
parts = lists(floats(-1.25, 1.25, width=32), min_size=1, max_size=20).map(torch.tensor)


def exact(value: Tensor | float) -> Fraction:
    return Fraction(float(value))


def to_float32(value: Fraction) -> Fraction:
    """The float32 nearest to a number, ties to even, in one rounding; for numbers of ordinary size."""
    if value == 0:
        return value
    exponent = abs(value).numerator.bit_length() - abs(value).denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    quantum = Fraction(2) ** (exponent - 23)
    return round(value / quantum) * quantum  # Python rounds halves to even


def clamped(value: int, grid: Grid) -> int:
    return max(grid.low, min(grid.high, value))


def significant_bits(value: float) -> int:
    numerator = float(value).as_integer_ratio()[0]
    return (numerator // (numerator & -numerator)).bit_length()


# the step


@law
@given(thresholds, engine_grids)
def test_a_step_has_at_most_16_significant_bits(threshold, grid):
    assert significant_bits(scale_of(threshold, grid)) <= 16


@law
@given(thresholds, engine_grids)
def test_a_step_is_off_by_at_most_one_part_in_65536(threshold, grid):
    wanted = exact(threshold / grid.high)

    assert abs(exact(scale_of(threshold, grid)) - wanted) <= wanted / 2**16


@law
@given(thresholds, engine_grids)
def test_every_multiple_of_a_step_up_to_255_is_exact_in_float32(threshold, grid):
    scale = scale_of(threshold, grid)
    multiples = torch.arange(-255.0, 256.0)

    products = multiples * scale

    assert torch.equal(products.double(), multiples.double() * scale.double())


@law
@given(thresholds, eight_bits)
def test_an_engine_that_rebuilds_the_step_from_the_ends_of_the_range_gets_the_same_bits(threshold, grid):
    scale = scale_of(threshold, grid)
    low, high = (-128, 127) if grid.signed else (0, 255)

    rebuilt = (high * scale - low * scale) / torch.tensor(255.0)

    assert torch.equal(rebuilt, scale)


@law
@given(thresholds, engine_grids)
def test_the_threshold_lies_on_the_highest_integer_of_an_engines_grid(threshold, grid):
    scale = scale_of(threshold, grid)

    assert quantize(threshold, scale, grid) == grid.high
    assert as_stored(threshold, scale, grid, StorageFormat()) == grid.high


@law
@given(thresholds, builds(Grid, bits=integers(2, 8), signed=booleans()))
def test_a_narrow_grid_keeps_the_step_as_it_is(threshold, grid):
    assert torch.equal(scale_of(threshold, grid), threshold / grid.high)


@pytest.mark.parametrize("threshold", [0.0, 1e-38, torch.inf, torch.nan])
def test_thresholds_that_are_no_ranges_keep_their_kind(threshold):
    scale = scale_of(torch.tensor(threshold), Grid(8, narrow=False))

    kept = scale.equal(torch.tensor(threshold)) or scale.isnan()
    assert (scale.isfinite() and scale > 0) if threshold < torch.inf else kept


def test_steps_of_several_channels_are_rounded_one_by_one():
    thresholds = torch.tensor([0.1, 3.0, 77.7])

    scales = scale_of(thresholds, Grid(8, narrow=False))

    assert torch.equal(scales, torch.stack([scale_of(threshold, Grid(8, narrow=False)) for threshold in thresholds]))


# the rounding


@law
@given(parts, thresholds, signed_grids)
def test_a_signed_tensor_is_rounded_shifted_by_128_product_and_sum_in_one_rounding(part, threshold, grid):
    x, scale = part * threshold, scale_of(threshold, grid)
    factor = exact(1 / scale)

    got = as_stored(x, scale, grid, StorageFormat(shifted=True))

    # double precision stands in for the one rounding: it differs only within 2^-45 of the middle of two floats
    expected = [clamped(round(to_float32(exact(value) * factor + 128)) - 128, grid) for value in x]
    assert got.tolist() == expected


@law
@given(parts, thresholds, integers(2, 8), hows)
def test_an_unsigned_tensor_is_rounded_like_any_other(part, threshold, bits, how):
    grid = Grid(bits, signed=False, narrow=False)
    x, scale = part * threshold, scale_of(threshold, grid)

    assert torch.equal(as_stored(x, scale, grid, how), quantize(x, scale, grid))


@law
@given(parts, thresholds, signed_grids)
def test_a_signed_tensor_that_is_not_shifted_is_rounded_like_any_other(part, threshold, grid):
    x, scale = part * threshold, scale_of(threshold, grid)

    assert torch.equal(as_stored(x, scale, grid, StorageFormat(shifted=False)), quantize(x, scale, grid))


@law
@given(parts, thresholds, engine_grids, hows)
def test_away_from_a_tie_the_nearest_integer_is_meant(part, threshold, grid, how):
    x, scale = part * threshold, scale_of(threshold, grid)
    quotients = [exact(value) / exact(scale) for value in x]
    # float32 has steps of 2^-16 between 128 and 256, where a shifted or an unsigned integer may lie, and the reciprocal
    # is off by one part in 2^24 of at most 320 steps: together less than 2^-14 of a step
    assume(all(abs(quotient % 1 - Fraction(1, 2)) > Fraction(1, 2**14) for quotient in quotients))

    assert as_stored(x, scale, grid, how).tolist() == [clamped(round(quotient), grid) for quotient in quotients]


def test_a_tie_goes_to_even_and_what_lies_closer_to_it_than_float32_sees_beside_128_is_one():
    x = torch.tensor([0.5, 1.5, -0.5, -1.5, 0.5 + 2**-18, 1.5 - 2**-18, 0.5 + 2**-15, 1.5 - 2**-15])
    grid = Grid(8, narrow=False)

    assert as_stored(x, 1.0, grid, StorageFormat(shifted=True)).tolist() == [0, 2, 0, -2, 0, 2, 1, 1]
    assert as_stored(x, 1.0, grid, StorageFormat(shifted=False)).tolist() == [0, 2, 0, -2, 1, 1, 1, 1]


@law
@given(thresholds, engine_grids, hows)
def test_every_integer_of_an_engines_grid_comes_back_from_its_real_number(threshold, grid, how):
    every, scale = torch.arange(float(grid.low), grid.high + 1), scale_of(threshold, grid)

    assert torch.equal(as_stored(dequantize(every, scale), scale, grid, how), every)


@law
@given(parts, thresholds, engine_grids, hows)
def test_a_larger_value_is_never_stored_lower(part, threshold, grid, how):
    ascending = (part * threshold).sort().values

    assert (as_stored(ascending, scale_of(threshold, grid), grid, how).diff() >= 0).all()


@law
@given(parts, thresholds, engine_grids)
def test_storing_leaves_its_input_alone(part, threshold, grid):
    x = part * threshold
    before = x.clone()

    for how in (StorageFormat(), StorageFormat(shifted=False), StorageFormat(unit=2.0)):
        as_stored(x, scale_of(threshold, grid), grid, how)

    assert torch.equal(x, before)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    "how", [StorageFormat(), StorageFormat(shifted=False), StorageFormat(unit=0.5), StorageFormat(unit=0.5, fused_add=True)]
)
def test_what_lies_outside_saturates_and_nan_stays(signed, how):
    x = torch.tensor([1e30, -1e30, torch.inf, -torch.inf, torch.nan])
    grid = Grid(8, signed, narrow=False)

    stored = as_stored(x, 0.1, grid, how)

    assert stored[:4].tolist() == [grid.high, grid.low] * 2
    assert stored[4].isnan()


# a tensor that is counted in steps of another


@law
@given(parts, thresholds, eight_bits)
def test_counted_in_its_own_steps_a_tensor_is_only_rounded(part, threshold, grid):
    scale, steps = scale_of(threshold, grid), part * 100

    shifted, plain = (as_stored(steps, scale, grid, StorageFormat(shifted=how, unit=scale)) for how in (True, False))

    assert torch.equal(plain, steps.round().clamp(grid.low, grid.high))
    assert torch.equal(shifted, ((steps + 128).round() - 128).clamp(grid.low, grid.high) if grid.signed else plain)


@law
@given(parts, floats(2**-20, 2**20, width=32).map(torch.tensor), eight_bits, integers(-10, 10), booleans())
def test_a_unit_that_is_a_power_of_two_changes_nothing(part, threshold, grid, power, shifted):
    x, scale = part * threshold, scale_of(threshold, grid)

    counted = as_stored(x / 2.0**power, scale, grid, StorageFormat(shifted, unit=2.0**power))

    assert torch.equal(counted, as_stored(x, scale, grid, StorageFormat(shifted)))


@law
@given(parts, thresholds, floats(0.03125, 32, width=32), eight_bits, booleans(), booleans())
def test_counted_in_any_steps_the_nearest_integer_is_meant(part, threshold, ratio, grid, shifted, fused_add):
    scale, unit = scale_of(threshold, grid), scale_of(threshold * ratio, grid)
    x = part * 127 / ratio
    quotients = [exact(value) * exact(unit) / exact(scale) for value in x]
    # as above, and four more roundings of at most 320 steps: less than 2^-12 of a step
    assume(all(abs(quotient % 1 - Fraction(1, 2)) > Fraction(1, 2**12) for quotient in quotients))

    stored = as_stored(x, scale, grid, StorageFormat(shifted, unit, fused_add))

    assert stored.tolist() == [clamped(round(quotient), grid) for quotient in quotients]


@law
@given(parts, thresholds, signed_grids, booleans(), hows)
def test_integers_of_an_engines_grid_are_the_stored_ones_with_the_gradient_straight(part, threshold, grid, through, how):
    scale = scale_of(threshold, grid)
    x = (part * threshold).requires_grad_()
    steps = x.detach() * (1 / scale)
    assume(((steps - (grid.low - 0.5)).abs() > 1e-3).all() and ((steps - (grid.high + 0.5)).abs() > 1e-3).all())

    whole = integers_with_gradient(x, scale, grid, pass_through=through, how=how)
    (whole * scale).sum().backward()

    inside = torch.ones_like(x) if through else ((steps > grid.low - 0.5) & (steps < grid.high + 0.5)).float()
    assert torch.equal(whole, as_stored(x.detach(), scale, grid, how))
    torch.testing.assert_close(x.grad, inside, rtol=1e-6, atol=0)  # scale · 1/scale is 1 to float32 rounding


def test_the_gradient_of_a_tensor_counted_in_steps_is_the_ratio_of_the_steps():
    x = torch.tensor([10.0, -20.0, 600.0], requires_grad=True)

    how = StorageFormat(unit=torch.tensor(0.25))
    whole = integers_with_gradient(x, torch.tensor(0.5), Grid(8, narrow=False), how=how)
    whole.sum().backward()

    assert whole.tolist() == [5.0, -10.0, 127.0]
    assert x.grad.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("unit", [None, 0.25])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_a_norm_in_the_ends_of_the_range_rounds_what_the_norm_gives(signed, fused, unit):
    grid, scale = Grid(8, signed, narrow=False), torch.tensor(0.125)
    factor, shift = torch.tensor([2.0, -0.5, 0.0]), torch.tensor([1.0, -3.0, 4.0])
    x = torch.linspace(-40, 40, 300, dtype=torch.float64).view(100, 3, 1).float() + 1e-3  # away from ties
    normed = x * factor.view(3, 1) + shift.view(3, 1)

    got = as_stored(normed, scale, grid, StorageFormat(norm=Norm(x / (unit or 1), factor, shift, unit, fused)))

    assert torch.equal(got, quantize(normed, scale, grid))
