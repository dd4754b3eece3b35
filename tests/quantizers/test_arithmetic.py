"""Laws of the rounding rule, held against random tensors, thresholds and grids."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
from hypothesis import assume, example, given, settings
from hypothesis.strategies import booleans, builds, floats, integers, lists
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from quaver.grid import Grid
from quaver.quantizers.arithmetic import dequantize, fake_quantize, integers_with_gradient, quantize, scale_of

law = settings(max_examples=100)
grids = builds(Grid, bits=integers(2, 8), signed=booleans())
signed_grids = builds(Grid, bits=integers(2, 8))
thresholds = floats(2**-20, 1e6, width=32, exclude_max=True).map(torch.tensor)
# up to 40 values: enough for whole SIMD lanes and for the scalar rest behind them
tensors = lists(floats(-(2**20), 2**20, width=32), min_size=1, max_size=40).map(torch.tensor)
# multiples of the threshold: most values of `tensors` saturate, most of these do not
fractions = lists(floats(-1.25, 1.25, width=32), min_size=1, max_size=40).map(torch.tensor)

ALL_GRIDS = [Grid(bits, signed) for bits in range(2, 9) for signed in (True, False)]


def assert_equal(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def gradient_of(function, x: Tensor) -> Tensor:
    """The gradient of ``(function(x) · weights).sum()``, each value weighing differently."""
    leaf = x.clone().requires_grad_()
    weights = torch.arange(1.0, x.numel() + 1)
    (function(leaf) * weights).sum().backward()
    return leaf.grad / weights


@law
@given(tensors, thresholds, grids)
def test_rounding_error_is_at_most_half_a_step_inside_the_range(x, threshold, grid):
    scale = scale_of(threshold, grid)
    inside = x.clamp(grid.low * scale, grid.high * scale)

    error = (fake_quantize(inside, scale, grid).double() - inside.double()).abs()

    assert error.max() <= 0.5001 * scale  # half a step, and room for float32 products up to 255 steps


@law
@given(fractions, tensors, thresholds, grids)
def test_rounding_twice_is_rounding_once(fraction, x, threshold, grid):
    scale = scale_of(threshold, grid)
    once = fake_quantize(torch.cat([x, fraction * threshold]), scale, grid)

    twice = fake_quantize(once, scale, grid)

    assert_equal(twice, once)


@law
@given(fractions, thresholds, grids)
def test_a_larger_value_never_rounds_lower(fraction, threshold, grid):
    ascending = (fraction * threshold).sort().values

    rounded = fake_quantize(ascending, scale_of(threshold, grid), grid)

    assert (rounded.diff() >= 0).all()


@law
@given(tensors, thresholds, grids)
def test_results_lie_between_the_lowest_and_the_highest_integer(x, threshold, grid):
    scale = scale_of(threshold, grid)

    rounded = fake_quantize(x, scale, grid)

    assert rounded.min() >= grid.low * scale
    assert rounded.max() <= grid.high * scale


@law
@given(fractions, tensors, thresholds, signed_grids)
def test_on_a_signed_grid_a_tensor_and_its_negative_round_alike(fraction, x, threshold, grid):
    scale = scale_of(threshold, grid)
    both = torch.cat([x, fraction * threshold])

    assert_equal(fake_quantize(-both, scale, grid), -fake_quantize(both, scale, grid))


@pytest.mark.parametrize("grid", ALL_GRIDS, ids=str)
def test_ties_go_to_even(grid):
    halfway = torch.arange(grid.low, grid.high) + 0.5
    expected = torch.tensor([float(round(value)) for value in halfway.tolist()])  # Python rounds halves to even

    assert_equal(quantize(halfway * 0.25, torch.tensor(0.25), grid), expected)  # 0.25: products and quotients are exact


@pytest.mark.parametrize("grid", ALL_GRIDS, ids=str)
def test_every_integer_of_the_grid_comes_back_from_its_real_number(grid):
    every = torch.arange(grid.low, grid.high + 1, dtype=torch.float32)
    scale = scale_of(torch.tensor(0.7), grid)

    assert_equal(quantize(dequantize(every, scale), scale, grid), every)


@law
@given(fractions, tensors, thresholds, grids)
def test_quantize_gives_whole_numbers_of_the_grid_and_leaves_its_input_alone(fraction, x, threshold, grid):
    x = torch.cat([x, fraction * threshold])
    before = x.clone()

    whole = quantize(x, scale_of(threshold, grid), grid)

    assert_equal(whole, whole.trunc())
    assert whole.min() >= grid.low
    assert whole.max() <= grid.high
    assert_equal(x, before)


@law
@given(fractions, tensors, thresholds, grids, booleans())
@example(torch.tensor([0.5]), torch.tensor([1e6, -37.7]), torch.tensor(1.0), Grid(8), True)  # far outside the range
def test_integers_times_scale_is_the_fake_quantized_tensor_bit_for_bit(fraction, x, threshold, grid, pass_through):
    scale = scale_of(threshold, grid)
    x = torch.cat([x, fraction * threshold])

    rounded = fake_quantize(x, scale, grid, pass_through=pass_through)

    assert_equal(rounded, dequantize(quantize(x, scale, grid), scale))
    assert_equal(rounded, integers_with_gradient(x, scale, grid, pass_through=pass_through) * scale)


@law
@given(thresholds, grids)
def test_the_threshold_lies_on_the_highest_integer(threshold, grid):
    assert quantize(threshold, scale_of(threshold, grid), grid) == grid.high


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@law
@given(fraction=fractions, threshold=floats(2**-10, 2**12, width=32).map(torch.tensor), grid=grids, pass_through=booleans())
def test_a_16_bit_tensor_is_rounded_in_float32_and_cast_back(dtype, fraction, threshold, grid, pass_through):
    x = (fraction * threshold).to(dtype)
    scale = scale_of(threshold, grid)

    rounded = fake_quantize(x, scale, grid, pass_through=pass_through)

    assert_equal(rounded, fake_quantize(x.float(), scale, grid, pass_through=pass_through).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_gradient_has_the_dtype_of_the_input(dtype):
    x = torch.tensor([0.3, -2.0], dtype=dtype, requires_grad=True)

    fake_quantize(x, torch.tensor(0.01), Grid(8)).sum().backward()

    assert_equal(x.grad, torch.tensor([1.0, 0.0], dtype=dtype))


@law
@given(fractions, tensors, thresholds, grids)
def test_the_gradient_is_1_inside_the_range_and_0_where_the_integer_saturates(fraction, x, threshold, grid):
    scale = scale_of(threshold, grid)
    x = torch.cat([x, fraction * threshold])
    steps = x * (1.0 / scale)
    assume((steps != grid.low - 0.5).all())  # on the very edge an unsigned grid rounds to 0, yet has no gradient
    inside = (steps.round() >= grid.low) & (steps.round() <= grid.high)

    gradient = gradient_of(lambda x: fake_quantize(x, scale, grid), x)

    assert_equal(gradient, inside.float())


@law
@given(thresholds, grids)
def test_the_value_at_the_threshold_keeps_its_gradient(threshold, grid):
    x = torch.stack([threshold, threshold / 2, threshold * 0.0, threshold * (1 if not grid.signed else -1)])

    gradient = gradient_of(lambda x: fake_quantize(x, scale_of(threshold, grid), grid), x)

    assert_equal(gradient, torch.ones(4))


def test_the_gradient_ends_half_a_step_beyond_the_last_integer():
    x = torch.tensor([127.25, 127.75, -127.25, -127.75])

    gradient = gradient_of(lambda x: fake_quantize(x, torch.tensor(1.0), Grid(8)), x)

    assert_equal(gradient, torch.tensor([1.0, 0.0, 1.0, 0.0]))


@law
@given(fractions, tensors, thresholds, grids)
def test_with_pass_through_the_gradient_is_1_everywhere(fraction, x, threshold, grid):
    scale = scale_of(threshold, grid)
    x = torch.cat([x, fraction * threshold])

    gradient = gradient_of(lambda x: fake_quantize(x, scale, grid, pass_through=True), x)

    assert_equal(gradient, torch.ones_like(x))


@law
@given(fractions, tensors, thresholds, grids, booleans())
def test_integers_times_scale_has_the_gradient_of_fake_quantize(fraction, x, threshold, grid, pass_through):
    scale = scale_of(threshold, grid)
    x = torch.cat([x, fraction * threshold])

    gradient = gradient_of(lambda x: integers_with_gradient(x, scale, grid, pass_through=pass_through) * scale, x)

    expected = gradient_of(lambda x: fake_quantize(x, scale, grid, pass_through=pass_through), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=0)  # scale · 1/scale is 1 to float32 rounding


@pytest.mark.parametrize("pass_through", [False, True])
@pytest.mark.parametrize("grid", ALL_GRIDS, ids=str)
def test_a_tensor_of_zeros_stays_zero_and_keeps_its_gradient(grid, pass_through):
    scale = scale_of(torch.tensor(0.0), grid)

    rounded = fake_quantize(torch.zeros(20), scale, grid, pass_through=pass_through)
    gradient = gradient_of(lambda x: fake_quantize(x, scale, grid, pass_through=pass_through), torch.zeros(20))

    assert_equal(rounded, torch.zeros(20))
    assert_equal(gradient, torch.ones(20))


@pytest.mark.parametrize("pass_through", [False, True])
@pytest.mark.parametrize("length", [3, 35])  # a scalar loop; SIMD lanes
def test_nan_stays_nan_and_its_neighbours_are_rounded_as_ever(length, pass_through):
    x = torch.full((length,), 0.3)
    x[1::2] = torch.nan

    rounded = fake_quantize(x, torch.tensor(0.25), Grid(8), pass_through=pass_through)

    assert_equal(rounded[1::2], torch.full_like(rounded[1::2], torch.nan))
    assert_equal(rounded[::2], torch.full_like(rounded[::2], 0.25))


@pytest.mark.parametrize("pass_through", [False, True])
def test_infinity_saturates(pass_through):
    x = torch.tensor([torch.inf, -torch.inf])

    rounded = fake_quantize(x, torch.tensor(0.5), Grid(8), pass_through=pass_through)

    assert_equal(rounded, torch.tensor([63.5, -63.5]))


@pytest.mark.parametrize("grid", [Grid(8), Grid(8, signed=False), Grid(4), Grid(2)], ids=str)
@pytest.mark.parametrize("threshold", [0.013, 1.0, 2.718, 977.0])
def test_integers_are_those_of_pytorchs_own_quantize_per_tensor(grid, threshold):
    dtype = torch.int8 if grid.signed else torch.uint8
    x = torch.randn(50_000, generator=torch.Generator().manual_seed(0)) * threshold * 0.7
    scale = scale_of(torch.tensor(threshold), grid)

    whole = quantize(x, scale, grid)

    theirs = torch.ops.quantized_decomposed.quantize_per_tensor(x, scale.item(), 0, grid.low, grid.high, dtype)
    assert_equal(whole.to(dtype), theirs)
    assert len(theirs.unique()) == grid.high - grid.low + 1  # the data reached every integer


@law
@given(thresholds, signed_grids)
@example(torch.tensor(0.7), Grid(8))
def test_integers_are_pytorchs_own_within_a_few_float32_of_every_tie(threshold, grid):
    scale = scale_of(threshold, grid)
    tie = (torch.arange(grid.low, grid.high) + 0.5) * scale
    x = torch.stack([(tie.view(torch.int32) + offset).view(torch.float32) for offset in range(-3, 4)])

    whole = quantize(x, scale, grid)

    theirs = torch.ops.quantized_decomposed.quantize_per_tensor(x, scale.item(), 0, grid.low, grid.high, torch.int8)
    assert_equal(whole.to(torch.int8), theirs)  # a division instead of a product with 1/scale would not pass


def test_the_gradient_is_the_same_under_activation_checkpointing():
    x, scale = torch.tensor([0.3, -1.0, 9.0], requires_grad=True), torch.tensor(0.02)

    def rounded(value):
        return fake_quantize(value, scale, Grid(8), pass_through=False)

    checkpoint(rounded, x, use_reentrant=False).sum().backward()

    assert x.grad.tolist() == [1, 1, 0]
