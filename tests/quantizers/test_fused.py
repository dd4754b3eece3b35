"""The kernels give the bits of the expressions: forward, ranges and gradients, seen through Triton's interpreter."""

import copy
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from needs import need_triton
from quaver.errors import ConfigError
from quaver.quantizers import PACT, ChannelWiseAbsMax, MovingAverageAbsMax, Observer, build, fused, kept_integers
from quaver.quantizers.fused.kernel import Launch
from quaver.quantizers.in_blocks import RELU, RELU6
from samples import assert_same_state, state_of

need_triton()
OBSERVING = {"abs_max": {}, "moving_average_abs_max": {}, "range_abs_max": {"window_size": 3}}
FLOATS = [torch.float32, torch.bfloat16, torch.float16]


@contextmanager
def kernels(wanted=True):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(fused.SWITCH, str(int(wanted)))
        with np.errstate(all="ignore"):  # the interpreter computes with numpy
            yield


def run(quantizer, tensors, slots, wanted):
    """All that a few steps leave: what came out, gradients, and the state behind each."""
    left = []
    with kernels(wanted):
        for x, slot in zip(tensors, slots, strict=True):
            leaf = x.detach().requires_grad_()
            y = quantizer(leaf, slot)
            y.backward(torch.linspace(-1, 1, x.numel()).to(x.dtype).view(x.shape))
            left += [y.detach(), leaf.grad, quantizer.threshold.detach(), *state_of(quantizer).values()]
            left += [parameter.grad.clone() for parameter in quantizer.parameters() if parameter.grad is not None]
    return left


def assert_same_bits(quantizer, tensors, slots=None):
    slots = slots or [0] * len(tensors)

    expected = run(copy.deepcopy(quantizer), tensors, slots, wanted=False)
    actual = run(quantizer, tensors, slots, wanted=True)

    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    outputs = slice(0, None, len(actual) // len(tensors))
    for one, other in zip(actual[outputs], expected[outputs], strict=True):
        assert one.stride() == other.stride()
        if quantizer.grid.signed:  # of an unsigned grid, CPU and CUDA give zeros of other signs
            assert torch.equal(one.signbit() & ~one.isnan(), other.signbit() & ~other.isnan())


def batches(dtype=torch.float32, shape=(2, 3, 4, 5), sizes=(1.0, 0.3, 2.0), **options):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(shape, generator=generator) * size).to(dtype=dtype, **options) for size in sizes]


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that ran."""
    names, launch = [], Launch.__call__
    monkeypatch.setattr(
        Launch, "__call__", lambda self, *given: names.append(self.function.fn.__name__) or launch(self, *given)
    )
    return names


@pytest.mark.parametrize("rule", [*OBSERVING, "learned_step"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_rule_and_grid_has_the_bits_of_its_expression(rule, dtype, launched):
    for signed, narrow, bits in [(True, False, 8), (False, False, 8), (True, True, 2), (False, True, 5), (True, False, 5)]:
        options = {"signed": signed, "narrow": narrow, "pass_through": bits == 5, **OBSERVING.get(rule, {})}

        assert_same_bits(build(rule, bits=bits, **options), batches(dtype, sizes=(1.0, 0.3)))

    back = "slope_and_mask" if rule == "learned_step" else "mask_gradient"
    assert {"observe_and_round" if rule in OBSERVING else "round_to_grid", back} == set(launched)


@pytest.mark.parametrize("rule", [*OBSERVING, "learned_step"])
def test_tensors_that_share_a_range(rule):
    quantizer = build(rule, tensors=3, narrow=False, **OBSERVING.get(rule, {}))

    assert_same_bits(quantizer, batches(sizes=(1.0, 0.3, 2.0, 0.1, 0.5)), [0, 2, 1, 2, None])


@pytest.mark.parametrize("rule", OBSERVING)
@pytest.mark.parametrize("tensors", [1, 2])
@pytest.mark.parametrize("bad", [float("nan"), -float("nan"), float("inf"), -float("inf")])
def test_a_tensor_that_is_not_finite_moves_no_range(rule, tensors, bad):
    for signed in (True, False):
        quantizer = build(rule, tensors=tensors, signed=signed, pass_through=True, **OBSERVING[rule])
        spoiled = batches()[0]
        spoiled[0, 1, 2, 3] = bad

        assert_same_bits(quantizer, [spoiled, *batches(), spoiled])
        assert quantizer.nonfinite == 2 if bad != -float("inf") or signed else quantizer.nonfinite == 0


@pytest.mark.parametrize("rule", OBSERVING)
def test_zeros_ties_and_values_beyond_a_limit(rule):
    quantizer = build(rule, **OBSERVING[rule])
    quantizer.clipped_at = torch.tensor(1.27)  # a step of 0.01, or nearly
    ties = torch.arange(-150, 150) * 0.01 + 0.005

    assert_same_bits(quantizer, [torch.zeros(7), ties, -torch.zeros(3), torch.full((5,), 1e-38)])


@pytest.mark.parametrize("rule", [*OBSERVING, "learned_step"])
def test_behind_pact(rule):
    quantizer = build(rule, preprocess="PACT", narrow=False, **OBSERVING.get(rule, {}))
    quantizer.preprocess = PACT(0.7)

    assert_same_bits(quantizer, batches())


@pytest.mark.parametrize("rule", OBSERVING)
@pytest.mark.parametrize("clamp", [RELU, RELU6])
@pytest.mark.parametrize("pass_through", [False, True])
def test_an_activation_in_front_is_computed_and_masked_with_it(rule, clamp, pass_through, launched):
    for signed, dtype in [(True, torch.float32), (False, torch.bfloat16)]:
        quantizer = build(rule, signed=signed, narrow=False, pass_through=pass_through, **OBSERVING[rule])
        quantizer.clipped_at = torch.tensor(4.0)
        spoiled = batches(dtype)[0]
        spoiled[0, 1, 2, 3] = float("nan")
        ends = torch.tensor([0.0, -0.0, 6.0, 5.99, 6.01, -1.0, 4.0, 4.02]).to(dtype)
        given = [*batches(dtype, sizes=(1.0, 8.0)), ends, spoiled]

        expected = run(Behind(copy.deepcopy(quantizer), clamp, apart=True), given, [0] * 4, wanted=False)
        launched.clear()
        actual = run(Behind(quantizer, clamp, apart=False), given, [0] * 4, wanted=True)

        for left in (actual, expected):  # CPU and CUDA give NaN's own gradient otherwise
            left[3 * len(left) // 4 + 1][0, 1, 2, 3] = 0
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        assert launched == ["observe_and_round", "mask_gradient"] * 4


class Behind(nn.Module):
    """A quantizer and the activation in front of it."""

    def __init__(self, quantizer, clamp, apart):
        super().__init__()
        self.quantizer, self.clamp, self.apart = quantizer, clamp, apart

    def forward(self, x, slot):
        return self.quantizer(self.clamp(x), slot) if self.apart else self.quantizer.in_one(x, self.clamp, slot)

    @property
    def threshold(self):
        return self.quantizer.threshold


@pytest.mark.parametrize("rule", OBSERVING)
def test_more_values_than_a_program_takes(rule):
    assert_same_bits(build(rule, narrow=False, **OBSERVING[rule]), batches(shape=(3, 1023)))


@pytest.mark.parametrize(
    "lay",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(1, 3),
        lambda x: x[:, :, ::2, 1:],
        lambda x: x[:1].expand(4, -1, -1, -1),
    ],
    ids=["channels_last", "transposed", "sliced", "expanded"],
)
def test_any_layout_in_memory(lay):
    for rule in ("moving_average_abs_max", "learned_step"):
        assert_same_bits(build(rule, narrow=False), [lay(x) for x in batches()])


@pytest.mark.parametrize("rule", ["channel_wise_abs_max", "learned_step"])
@pytest.mark.parametrize(
    ("shape", "axis", "pairs"),
    [
        ((4, 6, 3, 3), 0, 1),
        ((4, 5, 3, 2), 0, 1),
        ((4, 1, 3, 3), 0, 1),
        ((5, 4, 3, 3), 1, 0),
        ((6, 4, 2, 2), -3, 0),
        ((3, 300), 0, 1),
        ((4, 7), 0, None),
    ],
    ids=str,
)
def test_weights_by_channel(rule, shape, axis, pairs, launched):
    for bits, dtype in ((8, torch.float32), (4, torch.bfloat16)):
        quantizer = build(rule, bits=bits, axis=axis, pairs=pairs)

        assert_same_bits(quantizer, batches(dtype, shape, (1.0, 0.3)))
        if len(shape) == 4:
            quantizer = build(rule, bits=bits, axis=axis, pairs=pairs)
            assert_same_bits(quantizer, batches(dtype, shape, (1.0, 0.3), memory_format=torch.channels_last))

    assert set(launched) & {"round_weights", "slope_and_mask"}


def test_weights_with_nan_zeros_and_huge_values():
    weight = batches(shape=(5, 4, 3, 3))[0]
    weight[0], weight[1, 2, 1, 1], weight[2, 0, 0, 0] = 0, torch.nan, torch.inf
    weight[3] *= 1e38

    with kernels(False):
        expected = (q := ChannelWiseAbsMax(pairs=1))(weight), q.last
    with kernels():
        actual = (q := ChannelWiseAbsMax(pairs=1))(weight), q.last

    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def test_many_weights_in_one_launch(launched):
    from quaver.quantizers.fused import grouped_weights

    shapes = [(4, 6, 3, 3), (3, 1, 3, 3), (5, 7), (2, 5, 2, 2)]
    given = [nn.Parameter(batches(shape=shape, sizes=(1.0,))[0]) for shape in shapes]
    quantizers = [ChannelWiseAbsMax(bits=8 - index % 2, pairs=1) for index in range(len(shapes))]
    alone = copy.deepcopy(quantizers)

    with kernels():
        rounded = grouped_weights.WeightGroup(quantizers, given, torch.float32).rounded(given)

    assert launched == ["round_weights"]
    for weight, value, quantizer, other in zip(given, rounded, quantizers, alone, strict=True):
        value.sum().backward()
        assert torch.equal(value, other(weight))
        assert torch.equal(quantizer.threshold, other.threshold)
        assert torch.equal(weight.grad, torch.ones_like(weight))


@pytest.mark.parametrize("written", [False, True])
def test_what_was_rounded_before_is_given_out_once_and_not_where_the_weight_changed(written, launched):
    from quaver.quantizers.fused import grouped_weights

    quantizer, (weight,) = ChannelWiseAbsMax(), batches(shape=(3, 4), sizes=(1.0,))

    together = grouped_weights.WeightsTogether()

    with kernels(), together.rounded([(quantizer, weight, False), (nn.Identity(), weight, False)]):
        if written:
            weight.add_(1)
        first, second = quantizer(weight), quantizer(weight)

    assert len(launched) == 2 + written
    assert quantizer.precomputed is None
    assert torch.equal(first, quantizer(weight))
    assert torch.equal(second, first)


def test_a_weight_that_was_cut_is_rounded_as_it_is():
    from quaver.quantizers.fused import grouped_weights

    quantizer, weight = ChannelWiseAbsMax(), nn.Parameter(torch.randn(4, 3))
    together, shapes = grouped_weights.WeightsTogether(), []

    for _ in range(2):
        with kernels(), together.rounded([(quantizer, weight, False)]):
            shapes.append(quantizer(weight).shape)
        weight.data = weight.data[:2]

    assert shapes == [(4, 3), (2, 3)]


def test_the_table_follows_weights_to_new_places():
    quantizer = ChannelWiseAbsMax()
    one, other = batches(shape=(4, 6), sizes=(1.0, 0.3))

    for weight in (one, other, one):
        assert_same_bits(quantizer, [weight])


def test_an_observer_gives_back_what_it_is_given(launched):
    x = batches()[0]
    quantizer, expected = Observer(), Observer()

    with kernels():
        result = quantizer(x)
    expected(x)

    assert result is x
    assert launched == ["observe"]
    assert_same_state(state_of(quantizer), state_of(expected))


def test_an_activation_takes_one_launch_there_and_one_back(launched):
    quantizer = MovingAverageAbsMax(narrow=False, signed=False)

    assert_same_bits(quantizer, batches(sizes=(1.0,)))

    assert launched == ["observe_and_round", "mask_gradient"]


def test_a_derived_rule_observes_for_itself(launched):
    class Half(MovingAverageAbsMax):
        def observe(self, x, tensor=0):
            super().observe(x / 2, tensor)

    assert_same_bits(Half(), batches())

    assert not [name for name in launched if "observe" in name]


def test_what_looks_through_a_quantizer_finds_the_expression(launched):
    quantizer, (x, *_), suited = MovingAverageAbsMax().eval(), batches(), []

    with kernels():
        torch.func.vmap(lambda row: suited.append(fused.suits(row)) or row)(x)
        torch.jit.trace(quantizer, x, check_trace=False)
        torch.export.export(quantizer, (x,))
        quantizer(nn.Parameter(x).double())

    assert suited == [False]
    assert launched == []


def test_off_by_default(launched, monkeypatch):
    monkeypatch.delenv(fused.SWITCH, raising=False)

    MovingAverageAbsMax()(batches()[0])

    assert launched == []


def test_another_value_of_the_switch_is_refused(monkeypatch):
    monkeypatch.setenv(fused.SWITCH, "yes")

    with pytest.raises(ConfigError, match="QUAVER_FUSED='yes' in the environment: 1 switches the fused quantizers on"):
        MovingAverageAbsMax()(batches()[0])


@pytest.mark.slow
def test_compiled_for_an_accelerator_nothing_is_contracted_or_approximated(tmp_path):
    script = Path(__file__).with_name("ptx_of_fused.py")
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}

    done = subprocess.run(
        [sys.executable, script],
        env=without | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    kernels = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(kernels) == 13
    used = {instruction for kernel in kernels for instruction in kernel}
    assert "div.rn.f32" in used
    assert {name for name in used if name.startswith("div")} == {"div.rn.f32"}
    assert not [name for name in used if name.startswith(("fma", "mad", "rcp")) or "ftz" in name]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("signed", [False, True])
def test_kept_integers_stand_for_the_values_that_were_rounded(dtype, signed, launched, monkeypatch):
    monkeypatch.setenv(kept_integers.SWITCH, "1")
    quantizer, (x,) = MovingAverageAbsMax(narrow=False, signed=signed), batches(dtype, sizes=(1.0,))
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(2, 3, 1, 1).to(dtype).requires_grad_()
    gradients = []

    for read in (kept_integers.reading, lambda op, *given: op(*given)):
        with kernels():
            rounded = copy.deepcopy(quantizer)(x)
            read(torch.nn.functional.conv2d, rounded, weight).float().square().sum().backward()
        gradients.append((x.grad, weight.grad))
        x.grad = weight.grad = None

    assert launched.count("values_of") == 1
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_kept_integers_of_channels_stand_for_values_in_the_steps_of_their_channels(monkeypatch):
    monkeypatch.setenv(kept_integers.SWITCH, "1")
    weight = torch.nn.Parameter(torch.randn(3, 2, 1, 1) * torch.tensor([1.0, 4.0, 0.2]).view(3, 1, 1, 1))
    quantizer, x, gradients = build("learned_step", axis=0), torch.randn(2, 2, 4, 4), []

    for read in (kept_integers.reading, lambda op, *given: op(*given)):
        leaf = x.clone().requires_grad_()
        with kernels():
            rounded = copy.deepcopy(quantizer)(weight)
            read(torch.nn.functional.conv2d, leaf, rounded).square().sum().backward()
        gradients.append(leaf.grad)

    torch.testing.assert_close(*gradients, rtol=0, atol=0)
