import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quaver.int8 import requantize
from quaver.int8.requantize import Output
from quaver.xnnpack import arithmetic

linear = torch.ops.aten.linear.default
WIDE = Output(1.0, -128, 127)
SIGNED = (0, 0)


def row(*values):
    return torch.tensor([values], dtype=torch.float32)


def layer(x, weight, bias=None, x_scale=1.0, weight_scale=1.0, output=WIDE):
    return requantize.biased(linear, x, weight, bias, x_scale, weight_scale, (0, -1), (), output)


def test_a_layer_rounds_ties_to_even():
    result = layer(row(1, 3, 5), torch.eye(3), output=Output(2.0, -128, 127))

    assert result.tolist() == [[0, 2, 2]]


def test_a_layer_saturates_at_the_ends_of_its_grid():
    assert layer(row(100, -100), torch.eye(2), output=Output(1.0, -3, 50)).tolist() == [[50, -3]]


def test_a_bias_is_rounded_to_steps_of_the_sum_before_it_is_added():
    bias = torch.tensor([0.4, 0.6])

    result = layer(row(1, 1), 127 * torch.eye(2), bias, output=Output(0.25, -1000, 1000))

    assert result.tolist() == [[508, 512]]  # 127 + 0 and 127 + 1, in quarters


def test_a_bias_is_counted_in_finer_steps_where_the_weights_integers_leave_room():
    bias = torch.tensor([0.4, 0.6])

    result = layer(row(1, 1), torch.eye(2), bias, output=Output(1 / 64, -1000, 1000))

    assert result.tolist() == [[64 + 26, 64 + 38]]  # in steps of 1/64


def test_steps_may_be_one_per_channel():
    result = layer(row(10, 10), torch.eye(2), weight_scale=torch.tensor([1.0, 2.0]), x_scale=0.5)

    assert result.tolist() == [[5, 10]]


def test_a_weight_whose_biases_fit_is_left_alone():
    weight = torch.tensor([[100.0], [-3.0]])

    integers, steps = requantize.fitted(weight, torch.tensor([0.5, 0.25]), torch.tensor([1e6, -1e6]), 0.1, 0)

    assert torch.equal(integers, weight)
    assert steps.tolist() == [0.5, 0.25]


@pytest.mark.parametrize(("most", "factor"), [(1, 64), (3, 16), (7, 8), (15, 4), (31, 2), (63, 1), (127, 1)])
def test_a_weight_of_few_bits_gets_smaller_steps_and_stands_for_the_same(most, factor):
    weight = torch.tensor([[float(most)], [-1.0]])

    integers, steps = requantize.fitted(weight, 0.3, torch.tensor([0.5, 0.0]), 0.1, 0)

    assert torch.equal(integers, weight * factor)
    assert torch.equal(integers * steps.reshape(-1, 1), weight * torch.tensor(0.3))


def test_a_channel_whose_bias_does_not_fit_gets_larger_steps_and_smaller_integers():
    weight = torch.tensor([[100.0], [100.0]])

    integers, steps = requantize.fitted(weight, torch.tensor([1e-9, 1.0]), torch.tensor([8.0, 8.0]), 1.0, 0)

    assert steps.tolist() == [pytest.approx(8e-9), 1.0]  # 8e9 steps are more than 2^32
    assert integers.tolist() == [[12.0], [100.0]]
    assert 8.0 / steps[0] <= 2**30


def test_a_channel_with_a_bias_and_hardly_any_weight_gives_its_bias():
    result = layer(row(100.0), torch.tensor([[100.0]]), torch.tensor([8.0]), weight_scale=1e-20)

    assert result.tolist() == [[8]]


def test_a_sum_rounds_ties_upwards():
    result = arithmetic.added(row(1, 2, -1, -3), row(0, 1, 0, 0), 0.5, 0.5, WIDE)

    assert result.tolist() == [[1, 2, 0, -1]]  # of 0.5, 1.5, −0.5, −1.5


def test_a_sum_multiplies_by_21_bits():
    result = arithmetic.added(row(5, 15), row(0), 0.7, 0.7, WIDE)

    assert result.tolist() == [[3, 10]]  # 0.7 is 1468006/2^21, a little less: 3.5 and 10.5 are no ties


def test_a_negative_step_makes_it_a_difference():
    assert arithmetic.added(row(5), row(3), 1.0, -1.0, WIDE).tolist() == [[2]]


@given(x=st.integers(-128, 127), y=st.integers(-128, 127), scales=st.tuples(*[st.floats(0.01, 1.0)] * 3))
def test_a_sum_is_within_a_step_of_the_sum_of_reals(x, y, scales):
    a, b, out = map(requantize.single, scales)

    result = arithmetic.added(row(x), row(y), a, b, Output(out, -(10**6), 10**6)).item()

    assert abs(result - (x * a + y * b) / out) <= 0.502  # half a step, and 256 times the 2^-21 of each multiplier


def test_a_product_rounds_ties_to_even():
    assert requantize.multiplied(row(1, 3, 5), row(1), 1.0, 0.5, WIDE).tolist() == [[0, 2, 2]]


def test_a_mean_sums_integers_and_rounds_once():
    x = torch.tensor([[[[1.0, 2.0], [2.0, 1.0]], [[3.0, 3.0], [4.0, 4.0]]]])

    result = arithmetic.mean(x, 1.0, [2, 3], True, SIGNED, WIDE)

    assert result.flatten().tolist() == [2, 4]  # of 1.5 and 3.5
    assert result.shape == (1, 2, 1, 1)


def test_a_means_sum_is_that_of_the_integers_as_stored():
    x = torch.full((1, 1, 8, 8), 11.0)
    x[..., :3, :] += 1
    x[..., 0, :2] -= 1  # 726 in all, and 52.500014 steps of the result

    steps, output = 0.07065010070800781, Output(0.015265464782714844, 0, 255)

    assert arithmetic.mean(x, steps, [2, 3], True, (-128, -128), output).item() == 52
    assert arithmetic.mean(x, steps, [2, 3], True, (0, 0), output).item() == 53


def test_a_mean_over_other_axes_is_one_in_float():
    x = torch.arange(8.0).view(1, 2, 4)

    assert arithmetic.mean(x, 0.5, [1], False, SIGNED, WIDE).tolist() == [[1, 2, 2, 2]]  # of 1, 1.5, 2, 2.5


def test_an_average_pool_counts_its_padding():
    result = arithmetic.average(torch.full((1, 1, 2, 2), 9.0), 1.0, [3, 3], [1, 1], [1, 1], 9, WIDE)

    assert result.flatten().tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize(("size", "expected"), [([1, 1], [8]), ([2, 2], [2, 4, 10, 12]), ([4, 4], list(range(16)))])
def test_an_adaptive_pool_is_a_mean_or_a_plain_pool(size, expected):
    x = torch.arange(16.0).view(1, 1, 4, 4)  # averages 7.5, and 2.5, 4.5, 10.5, 12.5

    assert arithmetic.adaptive_average(x, 1.0, size, SIGNED, WIDE).flatten().tolist() == expected


def test_an_adaptive_pool_with_windows_of_different_sizes_is_one_in_float():
    x = torch.arange(25.0).view(1, 1, 5, 5)

    result = arithmetic.adaptive_average(x, 1.0, [2, 2], SIGNED, WIDE)

    assert torch.equal(result, torch.nn.functional.adaptive_avg_pool2d(x, 2).round())
