"""Whether the values of a user's function lie on an integer grid, and on which."""

import pytest
import torch
from hypothesis import given
from hypothesis.strategies import floats, integers, lists
from torch import nn

from quaver.grid import Grid
from quaver.quantizers import CustomQuantizer
from quaver.quantizers.custom import as_module
from quaver.quantizers.on_grid import OffGridError, clip_bounds, common_step, staircase

ENGINE, UNSIGNED = Grid(8, narrow=False), Grid(8, signed=False, narrow=False)
CPU = torch.device("cpu")


class Steps(nn.Module):
    """A quantizer as many write it, straight-through gradient included."""

    def __init__(self, step=0.03, low=-127, high=127):
        super().__init__()
        self.step, self.low, self.high = step, low, high

    def forward(self, x):
        rounded = (x / self.step).round().clamp(self.low, self.high) * self.step
        return x + (rounded - x).detach()


def found(function, grid=ENGINE, rank=4):
    module = function if isinstance(function, nn.Module) else CustomQuantizer(function).function
    return staircase(module, grid, rank, CPU)


# weights


@given(whole=lists(integers(-127, 127), min_size=1, max_size=20), step=floats(1e-6, 1e3))
def test_every_multiple_of_the_common_step_is_a_value_again(whole, step):
    values = torch.tensor(whole) * torch.tensor(step, dtype=torch.float32)

    result = common_step(values, None, Grid(8))

    multiples = (values / result.clamp_min(1e-30)).round()
    assert multiples.abs().max() <= 127
    assert ((multiples * result - values).abs() <= 2e-5 * step).all()  # at 127 steps, float32 ends after 1e-5 of one


@pytest.mark.parametrize("whole", [[6, 10, 15], [0, 127, 1], [100, 98, -96], [3], [0, 0], [126, -84], [127, 125, 62]])
def test_the_largest_step_that_explains_all_values_is_found(whole):
    whole = torch.tensor(whole)

    step = common_step(whole * 0.37, None, Grid(8))

    shared = torch.gcd(whole[0], whole[-1]) if len(whole) < 3 else torch.gcd(torch.gcd(whole[0], whole[1]), whole[2])
    assert step.item() == pytest.approx(shared.item() * 0.37, rel=1e-6)


def test_each_channel_has_a_step_of_its_own():
    whole = torch.tensor([[1.0, -3, 127], [2, 7, 5]])

    step = common_step(whole.t() * torch.tensor([0.5, 0.03]), 1, Grid(8))

    assert torch.allclose(step, torch.tensor([0.5, 0.03]))


def test_noise_of_a_straight_through_gradient_counts_as_equal():
    torch.manual_seed(0)
    weight = torch.randn(4, 3000)

    step = common_step(Steps(0.05)(weight), 0, Grid(8))

    assert torch.allclose(step, torch.full((4,), 0.05), rtol=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([1.0, 2.0**0.5]),
        torch.tensor([1.0, 128.0]),
        torch.linspace(-1, 1, 1000),
        torch.tensor([0.25, 0.5, 1.0, 1.0037]),
        torch.tensor([3.0, 127.3]),
    ],
)
def test_values_without_a_common_step_are_refused(values):
    with pytest.raises(OffGridError, match=r"are not all multiples of one step, at most 127 times it"):
        common_step(values, None, Grid(8))


def test_the_channel_that_does_not_fit_is_named():
    values = torch.tensor([[1.0, 2, 3], [1, 2, 3.3e-3], [1, 2, 3]])

    with pytest.raises(OffGridError, match="its values of channel 1, up to 2, are not"):
        common_step(values, 0, Grid(8))


def test_fewer_bits_have_fewer_multiples():
    values = torch.tensor([1.0, 8.0])

    assert common_step(values, None, Grid(5)) == 1
    with pytest.raises(OffGridError, match="at most 7 times it"):
        common_step(values, None, Grid(4))


# activations


@given(step=floats(1e-6, 1e4), low=integers(-128, -1), high=integers(1, 127))
def test_step_and_ends_of_a_staircase_are_found(step, low, high):
    result, ends = found(Steps(step, low, high))

    assert ends == (low, high)
    assert result == pytest.approx(step, rel=1e-5)


@pytest.mark.parametrize(("low", "high"), [(0, 255), (-127, 127), (-255, 15), (0, 1)])
def test_what_a_function_does_to_negative_values_is_nobodys_business_where_there_are_none(low, high):
    assert found(Steps(0.1, low, high), UNSIGNED)[1] == (0, high)


def fractions(x):
    return (x * 4).round().clamp(-4, 4) / 4


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_a_function_of_single_values_is_found_in_tensors_of_any_rank(rank):
    assert found(fractions, rank=rank) == (0.25, (-4, 4))


OFF = {  # what a function does, and what is said of it
    "does not round": (torch.tanh, "it gives 9.09495e-13 for 9.09495e-13: it does not round to steps"),
    "does not saturate": (lambda x: (x * 8).round() / 8, r"it goes from -63.875 to 63.875 in steps of 0.125"),
    "has an offset": (lambda x: fractions(x) + 0.1, "it gives 0.1 for 0"),
    "has zero off the middle": (Steps(0.1, -30, 225), r"from -3 to 22.5 in steps of 0.1, .* are -128 … 127; clip it"),
    "goes down": (lambda x: -fractions(x), "nothing but zeros and negative values for positive ones"),
    "is a ReLU": (lambda x: fractions(x).relu(), "no negative values for a tensor that has some; put a ReLU in front"),
    "is not uniform": (
        lambda x: x.sign() * (x.abs().clamp(2**-4, 2).log2().round().exp2()) * (x.abs() > 2**-5),
        "the nearest multiple of its step",
    ),
    "is soft": (
        lambda x: fractions(x) + 0.01 * torch.sin(x * 8 * torch.pi).clamp(-1, 1) * (x.abs() > 0.1),
        "nearest multiple",
    ),
    "rounds down": (lambda x: (x.clamp(-1, 1) * 4).floor() / 4, "it gives .* for"),
    "looks at the batch": (
        lambda x: (x / x.abs().amax() * 100).round() * x.abs().amax() / 100,
        "alone, and .* for it in a tensor",
    ),
    "looks at the largest nearby": (
        lambda x: fractions(x) if len(x.flatten()) < 9 or x.abs().amax() > 0.6 else x,
        "nearest",
    ),
    "has a step per channel": (lambda x: fractions(x / torch.ones(1, 3, 1, 1)), "does not do the same at every position"),
    "treats the first channel apart": (lambda x: torch.cat([fractions(x[:, :1]), x[:, 1:]], 1), "nearest multiple"),
    "treats the first column apart": (lambda x: torch.cat([fractions(x[..., :1]), x[..., 1:]], -1), "nearest multiple"),
    "takes one shape only": (lambda x: fractions(x.view(8, 3, 5, 7)), "it does not take single values: "),
    "gives NaN": (lambda x: fractions(x).where((x - 0.7).abs() > 0.02, torch.nan), "it gives nan"),
    "gives NaN beyond": (lambda x: fractions(x).where(x < 9, torch.nan), "it gives NaN or Inf for 127.75"),
    "rolls dice": (lambda x: fractions(x + 0.1 * torch.randn_like(x)) * (x != 0), "it gives"),
}


@pytest.mark.parametrize("what", OFF)
def test_a_function_that_is_no_staircase_is_refused_with_what_it_does(what):
    function, message = OFF[what]

    with pytest.raises(OffGridError, match=message):
        found(function)


def test_a_function_is_tried_in_evaluation_and_keeps_what_it_remembers():
    class Moving(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("largest", torch.tensor(2.54))

        def forward(self, x):
            if self.training:
                self.largest.copy_(x.abs().amax())
            step = self.largest / 127
            return (x / step).round().clamp(-127, 127) * step

    function = Moving().train()

    step, ends = found(function)

    assert (round(step, 6), ends) == (0.02, (-127, 127))
    assert function.largest == 2.54
    assert function.training


def test_evaluation_computes_on_the_integers_of_a_function_on_a_grid():
    quantizer = CustomQuantizer(Steps(0.5, -4, 4), narrow=False).eval()
    x = torch.tensor([-9.0, -0.3, 0.2, 0.9])

    integers, step = quantizer.integers(x)

    assert integers.tolist() == [-4, -1, 0, 2]
    assert step == 0.5


def test_evaluation_gives_gradients_to_a_function_on_a_grid():
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = nn.Parameter(torch.tensor(0.5))

        def forward(self, x):
            return (x / self.step).round().detach().clamp(-4, 4) * self.step

    for narrow in (True, False):
        quantizer = CustomQuantizer(Learned, narrow=narrow).eval()

        integers, step = quantizer.integers(torch.tensor([-9.0, 0.9]))
        (integers * step).sum().backward()

        assert quantizer.function.step.grad == -4 + 2


def test_compiled_evaluation_uses_the_function_as_it_is(monkeypatch):
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)

    integers, step = CustomQuantizer(fractions, narrow=False).eval().integers(torch.tensor([0.3]))

    assert (integers, step) == (0.25, 1)


def test_few_large_values_are_few_steps_and_not_127():
    rows = torch.tensor([[2.0, -2.0, 0.0], [127.0, 3.0, 0.0], [6.0, -3.0, 0.0]])

    assert torch.equal(common_step(rows, 0, Grid(8)), torch.tensor([2.0, 1.0, 3.0]))


CLIPS = {
    "hardtanh": (nn.Hardtanh(-1.0, 2.0), ENGINE, (-10, 20)),
    "with relus": (lambda x: x - (x - 2.3).relu() + (-2.3 - x).relu(), ENGINE, (-23, 23)),
    "beyond the grid": (lambda x: x.clamp(-1e6, 1e6), ENGINE, (-128, 127)),
    "behind a ReLU": (lambda x: x.clamp_max(6.0), UNSIGNED, (0, 60)),
    "a ReLU where it does nothing": (torch.relu, UNSIGNED, (0, 255)),
}
NO_CLIPS = {
    "a ReLU": torch.relu,
    "scaled": lambda x: 1.01 * x,
    "soft": torch.tanh,
    "shifted": lambda x: x + 0.1,
    "by the largest": lambda x: x.clamp(-0.5 * x.abs().max(), 0.5 * x.abs().max()),
    "one channel only": lambda x: torch.cat([x[:, :1].clamp(-1, 1), x[:, 1:]], 1),
    "not around 0": lambda x: x.clamp(0.5, 2.0),
    "zeros": lambda x: 0 * x,
    "small values lost": lambda x: torch.where(x.abs() < 0.2, 0.0, x),
    "raises": lambda x: x.no_such_thing(),
}


def clip_ends_of(function, grid):
    return clip_bounds(as_module(function), 0.1, grid, 4, CPU)


@pytest.mark.parametrize("which", CLIPS)
def test_a_clip_is_known_by_what_it_does(which):
    function, grid, ends = CLIPS[which]

    assert clip_ends_of(function, grid) == ends


@pytest.mark.parametrize("which", NO_CLIPS)
def test_what_does_anything_else_is_no_clip(which):
    with pytest.raises(OffGridError):
        clip_ends_of(NO_CLIPS[which], ENGINE)
