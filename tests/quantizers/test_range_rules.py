"""Where each rule's threshold comes from, in training and in evaluation."""

import pytest
import torch
from torch import Tensor, nn

from quaver.errors import ConfigError
from quaver.quantizers import (
    KINDS,
    AbsMax,
    ChannelWiseAbsMax,
    LearnedStep,
    MovingAverageAbsMax,
    Observer,
    RangeAbsMax,
    build,
)
from samples import assert_same_state, batch, new, state_of

STORED = [MovingAverageAbsMax, RangeAbsMax, Observer]
OBSERVING = [AbsMax, *STORED]
EVERY = [ChannelWiseAbsMax, *OBSERVING]


def test_abs_max_follows_the_tensor_at_hand_in_training():
    quantizer = AbsMax()

    thresholds = []
    for largest in (4.0, 1.0, 2.5):
        quantizer(batch(largest))
        thresholds.append(quantizer.threshold.item())

    assert thresholds == [4.0, 1.0, 2.5]


def test_abs_max_of_a_weight_is_recomputed_in_evaluation():
    quantizer = AbsMax(bits=4)
    quantizer(batch(4.0))
    fresh = AbsMax(bits=4)

    in_evaluation = quantizer.eval()(batch(1.0))

    assert torch.equal(in_evaluation, fresh(batch(1.0)))
    assert quantizer.threshold == 4.0


@pytest.mark.parametrize("how", ["evaluation", "observer off"])
def test_abs_max_of_an_activation_stays_that_of_the_last_training_tensor(how):
    quantizer = AbsMax(bits=4, narrow=False)
    quantizer(batch(3.5))
    quantizer.training, quantizer.observing = how != "evaluation", how == "evaluation"

    rounded = quantizer(batch(9.0))

    assert rounded.max() == 3.5
    assert torch.equal(rounded, torch.mul(*quantizer.integers(batch(9.0))))


def test_abs_max_of_an_activation_that_was_never_seen_lets_values_pass():
    quantizer = AbsMax(bits=4, narrow=False).eval()

    assert not quantizer.seen
    assert torch.equal(quantizer(batch(1.0)), batch(1.0))
    quantizer.train()(torch.zeros(3))
    assert quantizer.seen
    assert quantizer.threshold == 0.0


def test_abs_max_loads_a_state_dict_of_a_float_model():
    quantizer = AbsMax()
    quantizer(batch(4.0))
    floating: dict[str, Tensor] = {}

    quantizer.load_state_dict(floating)

    assert quantizer.threshold == 4.0
    assert floating == {}


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_channel_wise_thresholds_are_the_maxima_over_every_other_axis(axis):
    weight = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    quantizer = ChannelWiseAbsMax(axis=axis)

    rounded = quantizer(weight)

    channels = weight.movedim(axis, 0).flatten(1).abs().amax(1)
    assert torch.equal(quantizer.threshold, channels)
    by_hand = [AbsMax()(channel) for channel in weight.unbind(axis)]
    assert torch.equal(rounded, torch.stack(by_hand, axis % 3))


def test_a_vector_has_a_threshold_per_value():
    quantizer = ChannelWiseAbsMax(bits=2)

    rounded = quantizer(torch.tensor([0.3, -5.0, 0.0]))

    assert torch.equal(rounded, torch.tensor([0.3, -5.0, 0.0]))


@pytest.mark.parametrize("training", [True, False])
def test_channel_wise_follows_the_weight_after_an_optimizer_step(training):
    layer = nn.Linear(5, 3)
    quantizer = ChannelWiseAbsMax().train(training)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    quantizer(layer.weight).square().sum().backward()
    before = quantizer.threshold.clone()
    optimizer.step()

    quantizer(layer.weight)

    assert torch.equal(quantizer.threshold, layer.weight.detach().abs().amax(1))
    assert not torch.equal(quantizer.threshold, before)


def test_channel_wise_has_a_range_in_evaluation_before_any_training_step():
    weight = batch(3.0)

    rounded = ChannelWiseAbsMax().eval()(weight)

    assert (rounded - weight).abs().max() < 3.0 / 127
    assert not torch.equal(rounded, weight)


def test_channel_wise_has_no_state_to_save():
    quantizer = ChannelWiseAbsMax()
    quantizer(batch(1.0))

    assert quantizer.state_dict() == {}


def test_channel_wise_trains_after_a_look_in_inference_mode():
    quantizer = ChannelWiseAbsMax()
    with torch.inference_mode():
        quantizer(batch(1.0))

    quantizer(batch(2.0))

    assert torch.equal(quantizer.threshold, torch.tensor([2.0, 1.24]))


def test_channel_wise_follows_a_weight_of_another_shape():
    quantizer = ChannelWiseAbsMax()
    quantizer(torch.ones(2, 3))

    quantizer(torch.full((4, 3), 2.0))

    assert torch.equal(quantizer.threshold, torch.full((4,), 2.0))


@pytest.mark.parametrize("rule", [MovingAverageAbsMax, Observer])
def test_the_first_batch_sets_the_moving_average(rule):
    quantizer = rule(moving_rate=0.9)

    quantizer(batch(7.0))

    assert quantizer.threshold == 7.0


@pytest.mark.parametrize("rule", [MovingAverageAbsMax, Observer])
def test_the_moving_average_weighs_each_batch_by_its_age(rule):
    quantizer = rule(moving_rate=0.5)

    for largest in (8.0, 4.0, 2.0):
        quantizer(batch(largest))

    assert quantizer.threshold == (0.25 * 8 + 0.5 * 4 + 2) / (0.25 + 0.5 + 1)


def test_a_moving_rate_of_0_keeps_the_last_batch_only():
    quantizer = MovingAverageAbsMax(moving_rate=0)

    for largest in (8.0, 3.0):
        quantizer(batch(largest))

    assert quantizer.threshold == 3.0


def test_the_moving_average_is_used_after_the_update():
    quantizer = MovingAverageAbsMax(moving_rate=0.5)
    quantizer(batch(1.0))

    rounded = quantizer(batch(4.0))

    assert rounded.min() == -quantizer.threshold == -(0.5 * 1 + 4) / 1.5  # -4.0 saturates at the new average


@pytest.mark.parametrize("moving_rate", [1, 1.0, 1.5, -0.1, float("nan"), True, "0.9", None])
def test_an_impossible_moving_rate_is_refused(moving_rate):
    with pytest.raises(
        ConfigError, match=rf"moving_rate={moving_rate!r}: takes a number from 0 up to, but not including, 1"
    ):
        MovingAverageAbsMax(moving_rate=moving_rate)


def test_the_range_window_forgets_a_batch_after_exactly_window_size_steps():
    quantizer = RangeAbsMax(window_size=3)

    thresholds = []
    for largest in (9.0, 1.0, 2.0, 0.5, 0.25, 0.125, 0.0625):
        quantizer(batch(largest))
        thresholds.append(quantizer.threshold.item())

    assert thresholds == [9.0, 9.0, 9.0, 2.0, 2.0, 0.5, 0.25]


def test_a_window_of_1_keeps_the_last_batch_only():
    quantizer = RangeAbsMax(window_size=1)

    for largest in (9.0, 2.0):
        quantizer(batch(largest))

    assert quantizer.threshold == 2.0


def test_a_batch_left_out_of_the_window_pushes_none_out_of_it():
    quantizer = RangeAbsMax(window_size=2)
    for largest in (9.0, 1.0):
        quantizer(batch(largest))

    for _ in range(5):
        quantizer(batch(float("nan")))

    assert quantizer.threshold == 9.0


@pytest.mark.parametrize("window_size", [0, -1, 2.5, True, "10", None])
def test_an_impossible_window_size_is_refused(window_size):
    with pytest.raises(ConfigError, match=rf"window_size={window_size!r}: takes a whole number of at least 1"):
        RangeAbsMax(window_size=window_size)


@pytest.mark.parametrize("rule", OBSERVING)
def test_evaluation_never_moves_a_stored_threshold(rule):
    quantizer = new(rule)
    quantizer(batch(2.0))
    before = state_of(quantizer)

    quantizer.eval()(batch(50.0))

    assert_same_state(state_of(quantizer), before)
    assert quantizer.threshold == 2.0


@pytest.mark.parametrize("rule", [MovingAverageAbsMax, RangeAbsMax])
def test_evaluation_rounds_with_the_stored_threshold(rule):
    quantizer = new(rule)
    quantizer(batch(2.0))

    rounded = quantizer.eval()(batch(50.0))

    assert (rounded.min(), rounded.max()) == (-2.0, 2.0)


@pytest.mark.parametrize("rule", [MovingAverageAbsMax, RangeAbsMax])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_quantizer_that_has_seen_nothing_lets_values_pass_in_evaluation(rule, dtype):
    quantizer = new(rule, bits=2).eval()
    x = batch(3.0).to(dtype).requires_grad_()

    result = quantizer(x)
    integers, scale = quantizer.integers(x)

    result.sum().backward()
    torch.testing.assert_close(result, x, rtol=0, atol=0)
    torch.testing.assert_close(integers * scale, x.float(), rtol=0, atol=0)
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize("rule", OBSERVING)
def test_state_round_trips_through_a_state_dict(rule):
    trained = new(rule, tensors=2)
    for largest, tensor in ((3.0, 0), (1.0, 1), (2.0, 0)):
        trained(batch(largest), tensor)
    loaded = new(rule, tensors=2)

    loaded.load_state_dict(trained.state_dict())

    assert_same_state(state_of(loaded), state_of(trained))
    assert loaded.threshold == trained.threshold > 0


@pytest.mark.parametrize("rule", OBSERVING)
def test_training_goes_on_from_a_state_dict_as_if_never_interrupted(rule):
    trained, loaded = new(rule), new(rule)
    for largest in (3.0, 1.0):
        trained(batch(largest))
    loaded.load_state_dict(trained.state_dict())

    continued = loaded(batch(2.0))

    assert torch.equal(continued, trained(batch(2.0)))
    assert_same_state(state_of(loaded), state_of(trained))


@pytest.mark.parametrize("rule", EVERY)
def test_a_quantizer_is_made_again_from_its_options(rule):
    original = new(rule, bits=5, signed=False, pass_through=True, tensors=2)

    again = build(**original.options())

    assert type(again) is rule
    assert repr(again) == repr(original)
    assert again.options() == original.options()


def test_options_hold_what_each_rule_adds():
    assert ChannelWiseAbsMax(axis=1).options()["axis"] == 1
    assert MovingAverageAbsMax(moving_rate=0.25).options()["moving_rate"] == 0.25
    assert RangeAbsMax(window_size=12).options()["window_size"] == 12


def test_kinds_name_every_rule():
    assert {name: rule.kind for name, rule in KINDS.items()} == {name: name for name in KINDS}
    assert set(KINDS.values()) == {*EVERY, LearnedStep}


@pytest.mark.parametrize("rule", EVERY)
@pytest.mark.parametrize("bits", range(2, 9))
def test_a_quantizer_takes_2_to_8_bits(rule, bits):
    quantizer = new(rule, bits=bits)
    quantizer(batch(1.0))

    torch.testing.assert_close(quantizer.scale.amax(), torch.tensor(1.0 / (2 ** (bits - 1) - 1)), rtol=1e-7, atol=0)


@pytest.mark.parametrize("rule", EVERY)
@pytest.mark.parametrize("bits", [1, 9, True, 8.0])
def test_other_bits_are_refused(rule, bits):
    with pytest.raises(ConfigError, match=rf"bits={bits!r}: a quantizer takes 2 to 8 bits"):
        new(rule, bits=bits)


@pytest.mark.parametrize("rule", OBSERVING)
def test_an_unsigned_quantizer_ignores_what_is_negative(rule):
    quantizer = new(rule, signed=False)

    quantizer(torch.tensor([-9.0, 0.5, 2.0]))

    assert quantizer.threshold == 2.0
    assert quantizer.scale == torch.tensor(2.0) / 255


def test_an_unsigned_quantizer_rounds_negatives_to_zero():
    rounded = AbsMax(bits=2, signed=False)(torch.tensor([-9.0, 0.9, 3.0]))

    assert torch.equal(rounded, torch.tensor([0.0, 1.0, 3.0]))


@pytest.mark.parametrize("rule", [AbsMax, MovingAverageAbsMax, RangeAbsMax])
def test_integers_times_scale_is_what_forward_gives(rule):
    quantizer = new(rule, bits=4)
    rounded = quantizer(batch(3.0))

    integers, scale = quantizer.integers(batch(3.0))

    assert torch.equal(integers * scale, rounded)
    assert torch.equal(scale, quantizer.scale)
    assert torch.equal(integers, integers.round())


@pytest.mark.parametrize("rule", OBSERVING)
@pytest.mark.parametrize("value", [50.0, float("nan")])
def test_asking_for_integers_never_observes(rule, value):
    quantizer = new(rule)
    quantizer(batch(2.0))
    before = state_of(quantizer)

    quantizer.integers(batch(value))

    assert_same_state(state_of(quantizer), before)


@pytest.mark.parametrize("rule", OBSERVING)
def test_a_tensor_without_an_index_is_rounded_and_not_observed(rule):
    quantizer = new(rule)
    quantizer(batch(2.0))
    before = state_of(quantizer)

    quantizer(batch(50.0), None)

    assert_same_state(state_of(quantizer), before)


@pytest.mark.parametrize("rule", [AbsMax, ChannelWiseAbsMax, MovingAverageAbsMax, RangeAbsMax])
@pytest.mark.parametrize("pass_through", [False, True])
def test_a_saturated_value_has_a_gradient_only_with_pass_through(rule, pass_through):
    quantizer = new(rule, bits=4, pass_through=pass_through, signed=False)
    x = torch.tensor([[-2.0, 0.4, 2.0]], requires_grad=True)

    quantizer(x).sum().backward()

    assert torch.equal(x.grad, torch.tensor([[float(pass_through), 1.0, 1.0]]))


@pytest.mark.parametrize("rule", [AbsMax, ChannelWiseAbsMax, MovingAverageAbsMax, RangeAbsMax])
def test_a_batch_of_zeros_gives_zeros_and_a_gradient(rule):
    quantizer = new(rule)
    x = torch.zeros(2, 3, requires_grad=True)

    result = quantizer(x)

    result.sum().backward()
    assert torch.equal(result, torch.zeros(2, 3))
    assert torch.equal(x.grad, torch.ones(2, 3))


def test_an_observer_returns_the_very_tensor_it_was_given():
    x = batch(3.0)

    assert Observer(bits=2)(x) is x


@pytest.mark.parametrize("rule", EVERY)
@pytest.mark.parametrize("cast", [nn.Module.half, nn.Module.bfloat16, nn.Module.double])
def test_casting_a_model_leaves_the_thresholds_as_they_are(rule, cast):
    quantizer = new(rule)
    quantizer(batch(0.1))  # 0.1 has no exact form in 16 bits
    before = state_of(quantizer)

    cast(nn.Sequential(nn.Linear(1, 1), quantizer))

    assert_same_state(state_of(quantizer), before)


@pytest.mark.parametrize("rule", EVERY)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_threshold_is_float32_whatever_the_dtype_of_the_tensor(rule, dtype):
    quantizer = new(rule)

    result = quantizer(batch(1.0).to(dtype))

    assert quantizer.threshold.dtype == torch.float32
    assert result.dtype == dtype


def test_moving_to_a_device_takes_the_buffers_along():
    quantizer = MovingAverageAbsMax()

    quantizer.to("meta")

    assert {buffer.device.type for buffer in quantizer.buffers()} == {"meta"}
