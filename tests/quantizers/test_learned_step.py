"""LSQ: a step that is trained with the network."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.errors import ConfigError
from quaver.quantizers import LearnedStep
from quaver.quantizers.switches import disable_observer

W = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0))


def by_the_paper(x, step, low, high, count):
    """Equations 1 to 3 and the gradient scale of section 2.2, written as autograd differentiates them."""
    factor = 1 / math.sqrt(count * high)
    scaled = step * factor + (step - step * factor).detach()
    steps = x / scaled
    inside = steps.clamp(low, high)
    return (inside + (inside.round() - inside).detach()) * scaled


@pytest.mark.parametrize("bits", range(2, 9))
def test_the_step_starts_as_published_or_at_the_largest_value_where_that_is_less(bits):
    quantizer = LearnedStep(bits=bits)

    quantizer(W)

    high = 2 ** (bits - 1) - 1
    published = 2 * W.abs().mean() / math.sqrt(high)
    torch.testing.assert_close(quantizer.scale, torch.minimum(published, W.abs().max() / high))
    assert quantizer.threshold == quantizer.step.detach() * high


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_with_an_axis_every_channel_has_a_step(axis):
    quantizer = LearnedStep(bits=4, axis=axis)

    rounded = quantizer(W)

    alone = [LearnedStep(bits=4)(channel) for channel in W.unbind(axis)]
    torch.testing.assert_close(rounded, torch.stack(alone, axis % 3))
    assert quantizer.step.shape == (W.shape[axis],)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_gradient_of_the_step_is_the_papers(bits):
    quantizer = LearnedStep(bits=bits)
    quantizer(W)
    with torch.no_grad():
        quantizer.step.mul_(0.6)  # so that some values lie beyond the ends
    step = quantizer.step.detach().clone().requires_grad_()
    down = torch.randn(W.shape, generator=torch.Generator().manual_seed(1))

    quantizer(W).backward(down)
    high = 2 ** (bits - 1) - 1
    by_the_paper(W, step, -high, high, W.numel()).backward(down)

    torch.testing.assert_close(quantizer.step.grad, step.grad, rtol=1e-4, atol=1e-6)
    assert step.grad.abs() > 0


def test_an_activations_gradient_counts_the_features_of_one_image():
    x = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0)).relu()
    quantizer = LearnedStep(bits=4, signed=False, narrow=False)
    quantizer(x)
    step = quantizer.scale.detach().clone().requires_grad_()

    quantizer(x).sum().backward()
    by_the_paper(x, step, 0, 15, 3 * 4 * 4).sum().backward()

    torch.testing.assert_close(quantizer.step.grad, step.grad, rtol=1e-4, atol=1e-6)


def test_the_gradient_of_the_input_is_that_of_every_quantizer():
    quantizer = LearnedStep(bits=2)
    x = torch.tensor([0.4, -1.4, 1.6, 1.0], requires_grad=True)
    with torch.no_grad():
        quantizer.step.fill_(1.0)
        quantizer.known.fill_(True)

    quantizer(x).sum().backward()

    assert torch.equal(x.grad, torch.tensor([1.0, 1.0, 0.0, 1.0]))


def test_evaluation_has_the_gradient_of_training():
    quantizer, other = LearnedStep(bits=4), LearnedStep(bits=4)
    quantizer(W)
    other.load_state_dict(quantizer.state_dict())

    quantizer(W).square().sum().backward()
    integers, step = other.eval().integers(W)
    (integers * step).square().sum().backward()

    torch.testing.assert_close(other.step.grad, quantizer.step.grad)
    assert torch.equal(integers * step, quantizer(W))


def test_a_step_that_is_too_wide_is_trained_to_fit():
    quantizer = LearnedStep(bits=3)
    quantizer(W)
    with torch.no_grad():
        quantizer.step.mul_(4)
    optimizer = torch.optim.SGD(quantizer.parameters(), lr=0.05)
    before = (quantizer(W) - W).square().mean()

    for _ in range(100):
        optimizer.zero_grad()
        (quantizer(W) - W).square().sum().backward()
        optimizer.step()

    assert (quantizer(W) - W).square().mean() < 0.3 * before


def test_a_negative_step_counts_as_its_size():
    quantizer = LearnedStep(bits=4)
    quantizer(W)
    expected = quantizer(W)

    with torch.no_grad():
        quantizer.step.neg_()

    assert torch.equal(quantizer(W), expected)
    assert quantizer.scale > 0


def test_a_negative_step_is_trained_as_its_size_is():
    quantizer, other = LearnedStep(bits=4), LearnedStep(bits=4)
    quantizer(W)
    other.load_state_dict(quantizer.state_dict())
    with torch.no_grad():
        other.step.neg_()

    for one in (quantizer, other):
        one(W).square().sum().backward()

    assert torch.equal(other.step.grad, -quantizer.step.grad)
    assert other.step.grad != 0


def test_with_the_observer_off_the_step_gets_no_gradient():
    quantizer = LearnedStep(bits=4)
    quantizer(W)
    quantizer.apply(disable_observer)
    x = W.clone().requires_grad_()

    quantizer(x).sum().backward()

    assert quantizer.step.grad is None
    assert x.grad.abs().sum() > 0


def test_only_the_first_tensor_starts_the_step():
    quantizer = LearnedStep()
    quantizer(W)
    before = quantizer.step.detach().clone()

    quantizer(10 * W)

    assert torch.equal(quantizer.step.detach(), before)


def test_zeros_start_nothing_and_stay_zeros():
    quantizer = LearnedStep(bits=4, axis=0)

    assert torch.equal(quantizer(torch.zeros(2, 3)), torch.zeros(2, 3))
    quantizer(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]))

    assert quantizer.step[0] > 0
    assert quantizer.step[1] == 0
    assert quantizer.seen


def test_a_first_batch_with_nan_starts_nothing_and_is_counted():
    quantizer = LearnedStep()

    quantizer(torch.tensor([1.0, float("nan")]))

    assert not quantizer.seen
    assert quantizer.nonfinite == 1
    quantizer(W)
    assert quantizer.seen


def test_tensors_that_share_a_step_start_it_at_the_widest():
    quantizer = LearnedStep(tensors=2)

    quantizer(W, 0)
    quantizer(3 * W, 1)
    alone = LearnedStep()
    alone(3 * W)

    assert torch.equal(quantizer.step, alone.step)


def test_a_narrow_tensor_does_not_narrow_a_step_it_shares():
    quantizer = LearnedStep(tensors=2)

    quantizer(3 * W, 0)
    before = quantizer.step.detach().clone()
    quantizer(W, 1)

    assert torch.equal(quantizer.step.detach(), before)


def test_a_quantizer_called_twice_in_a_step_trains():
    quantizer = LearnedStep()

    (quantizer(W).sum() + quantizer(W + 1).square().sum()).backward()

    assert quantizer.step.grad.isfinite()


def test_half_leaves_the_step_in_float32():
    quantizer = LearnedStep()
    quantizer(W)

    quantizer.half()

    assert quantizer.step.dtype == torch.float32
    assert quantizer(W.half()).dtype == torch.float16


def test_a_state_with_channels_loads_before_the_first_tensor():
    quantizer, other = LearnedStep(axis=0), LearnedStep(axis=0)
    expected = quantizer(W)

    other.load_state_dict(quantizer.state_dict())

    assert torch.equal(other.eval()(W), expected)


# in programs

CONFIGS = {
    "per tensor": {"weight_quantize_type": "learned_step", "activation_quantize_type": "learned_step"},
    "per channel": {"weight_quantize_type": "channel_wise_learned_step", "activation_quantize_type": "learned_step"},
    "4 bits": {
        "weight_quantize_type": "channel_wise_learned_step",
        "activation_quantize_type": "learned_step",
        "weight_bits": 4,
        "activation_bits": 4,
    },
    "2 bits, ends at 8": {
        "weight_quantize_type": "learned_step",
        "activation_quantize_type": "learned_step",
        "weight_bits": 2,
        "activation_bits": 3,
        "layer_bits": {"stem": 8, "fc": (8, 8)},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
def test_frozen_and_int8_equal_what_was_trained(config, patterns, images, train):
    qat = quaver.quant_aware(patterns, CONFIGS[config], example_inputs=(images,))
    before = [parameter.detach().clone() for parameter in qat.quantizer_parameters()]
    train(qat, steps=5)

    frozen, int8 = quaver.convert(qat, save_int8=True)

    assert torch.equal(frozen(images), qat(images))
    assert torch.equal(int8(images), frozen(images))
    moved = [not torch.equal(old, new) for old, new in zip(before, qat.quantizer_parameters(), strict=True)]
    assert sum(moved) > 0.9 * len(moved)


@pytest.mark.slow
def test_the_engine_agrees_to_the_last_integer_with_4_bits_and_8_at_the_ends(patterns, images, train, tmp_path):
    qat = train(quaver.quant_aware(patterns, CONFIGS["4 bits"] | {"layer_bits": {"stem": 8}}, example_inputs=(images,)))
    frozen = quaver.convert(qat)

    result = quaver.verify(frozen, quaver.export(frozen, tmp_path), [images, 2 * images])

    assert (result.agreement, result.integers_equal) == (1.0, 1.0)


def test_weights_have_their_step_before_the_first_batch(patterns, images):
    qat = quaver.quant_aware(patterns, CONFIGS["per channel"], example_inputs=(images,))

    step = qat.quantizer("body.weight").step
    assert step.shape == (16,)
    assert (step > 0).all()


def test_the_first_and_last_layer_can_have_more_bits(patterns, images):
    qat = quaver.quant_aware(patterns, CONFIGS["2 bits, ends at 8"], example_inputs=(images,))

    bits = {name: quantizer.grid.bits for name, quantizer in qat.quantizers() if name.endswith(".weight")}
    assert (bits.pop("stem.weight"), bits.pop("fc.weight")) == (8, 8)
    assert set(bits.values()) == {2}
    assert qat.quantizer("x").grid.bits == 8
    assert qat.quantizer("relu.output").grid.bits == 3


def test_of_two_wishes_for_one_tensor_the_one_with_more_bits_is_granted(images):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)

        def forward(self, x):
            return self.first(x) + self.second(x)

    config = {"activation_bits": 4, "layer_bits": {"second": 6}, "quantize_op_types": ["conv2d"]}

    qat = quaver.quant_aware(Twice(), config, example_inputs=(images,))

    assert qat.quantizer("x").grid.bits == 6


@pytest.mark.parametrize("wrong", [{"stem": 9}, {"stem": (8,)}, {"": 8}, 8, {"stem": "8"}, {3: 8}, {"stem": True}])
def test_layer_bits_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"layer_bits=.*: takes a dict from a part of an op's scope to bits \(2 to 8\)"):
        quaver.QuantConfig(layer_bits=wrong)


def test_saved_and_loaded_steps_train_on_as_if_nothing_had_happened(patterns, images, train, tmp_path):
    qat = quaver.quant_aware(patterns, CONFIGS["per channel"], example_inputs=(images,))
    train(qat)
    quaver.save(qat.train(), tmp_path)
    again = quaver.load(tmp_path)

    torch.manual_seed(5)
    expected = train(qat)(images)
    torch.manual_seed(5)

    assert torch.equal(train(again)(images), expected)


def test_training_under_autocast_moves_the_steps_in_float32(patterns, images):
    qat = quaver.quant_aware(patterns, CONFIGS["4 bits"], example_inputs=(images,)).train()

    with torch.autocast("cpu", torch.bfloat16):
        loss = qat(images).float().square().mean()
    loss.backward()

    assert all(one.dtype == torch.float32 and one.grad.isfinite().all() for one in qat.quantizer_parameters())


@pytest.mark.slow
def test_a_compiled_program_has_the_gradients_of_the_eager_one():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 6), nn.Flatten())
    images = torch.randn(4, 3, 8, 8)
    qat = quaver.quant_aware(model, CONFIGS["4 bits"], example_inputs=(images,)).train()
    qat(images)

    def gradients(run):
        qat.zero_grad()
        F.cross_entropy(run(images), torch.arange(4)).backward()
        return [parameter.grad.clone() for parameter in qat.quantizer_parameters()]

    expected = gradients(qat)
    torch._dynamo.reset()
    compiled = gradients(torch.compile(qat, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()

    assert all(one.abs().sum() > 0 for one in expected)
    for ours, theirs in zip(compiled, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
