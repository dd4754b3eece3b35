"""Laws of the bound that keeps pairs of weights inside 16 bits, and a simulation of the instruction it is for."""

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis.strategies import composite, integers, lists
from torch import Tensor

from quaver.grid import Grid
from quaver.quantizers import AbsMax, ChannelWiseAbsMax
from quaver.quantizers.arithmetic import fake_quantize, integers_with_gradient, quantize
from quaver.quantizers.saturation import LARGEST_SUM, without_overflow

law = settings(max_examples=100)
weight = integers(-127, 127)
rows = lists(weight, min_size=1, max_size=41).map(lambda values: torch.tensor(values, dtype=torch.float32))


@composite
def tensors(draw):
    """A weight of one to four dimensions, odd sizes among them, and an axis, counted from either end."""
    shape = draw(lists(integers(1, 5), min_size=1, max_size=4))
    values = draw(lists(weight, min_size=torch.Size(shape).numel(), max_size=torch.Size(shape).numel()))
    axis = draw(integers(-len(shape), len(shape) - 1))
    return torch.tensor(values, dtype=torch.float32).reshape(shape), axis


def one_layout():
    """Those that all kernels lay out alike."""
    return tensors().filter(lambda case: case[0].shape[case[1]] % 2 == 0 or case[0].dim() < 3)


def pairs(integers: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """First and second of each pair, written another way than the code under test writes it."""
    along = integers.movedim(axis, 0)
    count = len(along) // 2 * 2
    return along[0:count:2], along[1:count:2]


def excess_of(integers: Tensor, axis: int) -> Tensor:
    """By how much each pair of one sign lies above the bound."""
    first, second = pairs(integers, axis)
    return ((first + second).abs() - 128).clamp_min(0) * (first.sign() == second.sign())


def filters_in_rows(integers: Tensor, axis: int) -> list[Tensor]:
    """A matrix with a filter in each row, as kernels lay them out: taps row by row, and column by column."""
    filters, *taps = [other for other in range(integers.dim()) if other != axis % integers.dim()]
    return [integers.permute(filters, *order, axis).flatten(1) for order in (taps, taps[::-1])]


def saturating_sums(activations: Tensor, weights: Tensor) -> Tensor:
    """What ``vpmaddubsw`` gives for u8 activations and s8 weights: sums of two products, saturated to 16 bits."""
    products = activations.long() * weights.long()
    return (products[..., 0::2] + products[..., 1::2]).clamp(-(2**15), 2**15 - 1)


@law
@given(tensors())
def test_every_pair_of_one_sign_is_within_the_bound_afterwards(case):
    integers, axis = case

    bounded = without_overflow(integers, axis)

    assert not excess_of(bounded, axis).any()


@law
@given(tensors())
def test_pairs_across_the_taps_of_a_filter_with_an_odd_number_of_channels_are_within_the_bound(case):
    integers, axis = case
    assume(integers.dim() > 1)

    bounded = without_overflow(integers, axis)

    if integers.shape[axis] % 2 and integers.dim() > 2:
        for rows in filters_in_rows(bounded, axis):
            assert not excess_of(rows, 1).any()


@law
@given(tensors())
def test_only_filters_with_a_pair_beyond_the_bound_change_and_only_towards_zero(case):
    integers, axis = case
    assume(integers.dim() > 1)
    rows, *others = filters_in_rows(integers, axis)
    across = [*others, rows] if integers.shape[axis] % 2 and integers.dim() > 2 else []
    beyond = excess_of(integers.movedim(axis, -1), -1)  # pairs first, filters second
    wrong = beyond.flatten(2).any(2).any(0) if beyond.dim() > 2 else beyond.any(0)
    wrong = wrong | torch.stack([excess_of(row, 1).any(0) for row in across] or [torch.zeros_like(wrong)]).any(0)

    bounded = without_overflow(integers, axis)

    after, before = filters_in_rows(bounded, axis)[0], rows
    assert torch.equal(after[~wrong], before[~wrong])
    assert (after.abs() <= before.abs()).all()


@law
@given(one_layout())
def test_pairs_that_fit_and_the_odd_one_out_are_not_touched(case):
    integers, axis = case
    fits = excess_of(integers, axis) == 0

    bounded = without_overflow(integers, axis)

    for before, after in zip(pairs(integers, axis), pairs(bounded, axis), strict=True):
        assert torch.equal(before[fits], after[fits])
    if integers.shape[axis] % 2:
        assert torch.equal(bounded.select(axis, -1), integers.select(axis, -1))


@law
@given(one_layout())
def test_no_more_is_taken_than_is_too_much_and_from_both_alike(case):
    integers, axis = case
    excess = excess_of(integers, axis)

    bounded = without_overflow(integers, axis)

    (first, second), (first_after, second_after) = pairs(integers, axis), pairs(bounded, axis)
    cut, other = first.abs() - first_after.abs(), second.abs() - second_after.abs()
    assert torch.equal(cut + other, excess)
    assert ((cut - other).abs() <= 1).all()
    assert (cut[first.abs() > second.abs()] >= other[first.abs() > second.abs()]).all()
    assert (cut[first.abs() < second.abs()] <= other[first.abs() < second.abs()]).all()


@law
@given(tensors())
def test_no_weight_turns_its_sign_or_stops_being_whole(case):
    integers, axis = case

    bounded = without_overflow(integers, axis)

    assert bounded.shape == integers.shape
    assert torch.equal(bounded, bounded.trunc())
    assert torch.equal(bounded.sign(), integers.sign())


@law
@given(tensors())
def test_bounding_twice_is_bounding_once(case):
    integers, axis = case
    once = without_overflow(integers, axis)

    assert torch.equal(without_overflow(once, axis), once)


@law
@given(tensors())
def test_a_weight_and_its_negative_are_bounded_alike(case):  # a batch norm with a negative gamma turns the sign afterwards
    integers, axis = case

    assert torch.equal(without_overflow(-integers, axis), -without_overflow(integers, axis))


@law
@given(tensors())
def test_an_axis_counted_from_the_end_is_the_same_axis(case):
    integers, axis = case

    assert torch.equal(without_overflow(integers, axis), without_overflow(integers, axis % integers.dim() - integers.dim()))


def test_the_pairs_lie_along_the_axis_and_nowhere_else():
    integers = torch.tensor([[127.0, 127.0], [-127.0, 1.0]])

    assert torch.equal(without_overflow(integers, 0), integers)
    assert torch.equal(without_overflow(integers, 1), torch.tensor([[64.0, 64.0], [-127.0, 1.0]]))


@pytest.mark.parametrize(("shape", "axis"), [((2, 1, 3, 3), 1), ((2, 3, 3, 3), 1), ((3, 2, 3, 3), 0), ((2, 3, 5), 1)])
def test_the_last_channel_of_a_tap_and_the_first_of_the_next_fit_together(shape, axis):
    bounded = without_overflow(torch.full(shape, 127.0), axis)

    for rows in filters_in_rows(bounded, axis):
        assert (rows[:, 0:-1:2] + rows[:, 1::2]).max() == 128
    assert bounded.min() > 0


def test_the_input_is_left_alone():
    integers = torch.full((2, 2), 127.0)

    without_overflow(integers, 1)

    assert torch.equal(integers, torch.full((2, 2), 127.0))


@law
@given(rows)
@example(torch.tensor([127.0, 127.0, -127.0, -127.0]))
def test_bounded_weights_never_saturate_16_bits(row):
    bounded = without_overflow(row[: len(row) // 2 * 2], 0)
    activations = torch.randint(0, 256, (64, len(bounded)), generator=torch.Generator().manual_seed(0))
    activations[0] = 255  # the worst there is

    sums = saturating_sums(activations, bounded)

    exact = activations.long() * bounded.long()
    assert torch.equal(sums, exact[..., 0::2] + exact[..., 1::2])


def test_weights_that_are_not_bounded_saturate_16_bits():
    weights = torch.tensor([127.0, 127.0, -127.0, -127.0])
    activations = torch.full((4,), 255)

    assert saturating_sums(activations, weights).tolist() == [2**15 - 1, -(2**15)]
    assert saturating_sums(activations, without_overflow(weights, 0)).tolist() == [255 * 128, -255 * 128]


def test_the_bound_is_the_largest_that_fits():
    assert 255 * LARGEST_SUM < 2**15 <= 255 * (LARGEST_SUM + 1)


@pytest.mark.parametrize("bits", range(2, 9))
def test_only_grids_that_reach_the_bound_are_bounded(bits):
    grid = Grid(bits)
    largest = torch.full((2,), float(grid.high))

    integers = quantize(largest, 1.0, grid, saturation_axis=0)

    assert torch.equal(integers, torch.full((2,), 64.0) if bits == 8 else largest)


@law
@given(rows)
def test_the_forward_of_training_holds_the_bounded_integers(row):
    scale = torch.tensor(0.25)
    x = row * scale

    rounded = fake_quantize(x, scale, Grid(8), saturation_axis=0)

    expected = without_overflow(row, 0)
    assert torch.equal(rounded, expected * scale)
    assert torch.equal(integers_with_gradient(x, scale, Grid(8), saturation_axis=0), expected)


@pytest.mark.parametrize("pass_through", [False, True])
def test_the_gradient_passes_weights_that_were_bounded(pass_through):
    x = torch.tensor([127.0, 127.0, 100.0, 31.0, 5.0, -3.0], requires_grad=True)
    weights = torch.arange(1.0, 7.0)

    (fake_quantize(x, torch.tensor(1.0), Grid(8), pass_through=pass_through, saturation_axis=0) * weights).sum().backward()

    assert torch.equal(x.grad, weights)


def test_integers_pass_the_gradient_of_weights_that_were_bounded():
    x = torch.tensor([63.5, 63.5, 100.0, 5.0], requires_grad=True)  # 127 steps, twice; 200, which saturate; 10

    (integers_with_gradient(x, torch.tensor(0.5), Grid(8), saturation_axis=0) * 0.5).sum().backward()

    assert torch.equal(x.grad, torch.tensor([1.0, 1.0, 0.0, 1.0]))


def test_without_pairs_nothing_is_bounded():
    assert torch.equal(quantize(torch.full((2,), 127.0), 1.0, Grid(8)), torch.full((2,), 127.0))


@law
@given(tensors(), integers(-30, 30), integers(0, 2**32 - 1))
@example((torch.tensor([[64.5, 63.5]]), 1), 0, 0)
def test_a_range_from_the_weight_itself_leaves_no_pair_to_cut(case, exponent, seed):
    whole, axis = case
    assume(whole.dim() > 1)
    generator = torch.Generator().manual_seed(seed)
    weight = (whole + torch.rand(whole.shape, generator=generator) - 0.5) * 2.0**exponent
    filters = next(other for other in range(weight.dim()) if other != axis % weight.dim())

    for quantizer in (ChannelWiseAbsMax(axis=filters, pairs=axis % weight.dim()), AbsMax(pairs=axis % weight.dim())):
        rounded, step = quantizer.integers(weight)

        assert torch.equal(without_overflow(rounded, axis), rounded)
        assert (rounded * quantizer.per_channel(step, weight) - weight).abs().max() <= 0.5001 * step.max()  # none was cut


def test_weights_of_half_precision_are_kept_from_overflowing_as_exactly():
    weight = (1 - 0.05 * torch.rand(16, 64, 3, 3, generator=torch.Generator().manual_seed(0))).bfloat16()

    rounded, _ = ChannelWiseAbsMax(axis=0, pairs=1).integers(weight)

    assert torch.equal(without_overflow(rounded, 1), rounded)


def test_a_weight_of_one_filter_without_taps_has_pairs_as_well():
    rounded, _ = AbsMax(pairs=0).integers(torch.tensor([1.0, 1.0, 0.9, -1.0]))

    assert torch.equal(without_overflow(rounded, 0), rounded)
    assert rounded[0] == 64
