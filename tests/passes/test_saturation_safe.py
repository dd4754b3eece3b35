"""Which weights ``saturation_safe`` bounds, along which axis, and that training and freezing give the same integers."""

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import ConfigError
from quaver.passes import QuantizationTransformPass
from quaver.quantizers.saturation import without_overflow

ALL = ["conv1d", "conv2d", "depthwise_conv2d", "conv2d_transpose", "mul", "matmul"]
IMAGE, VECTOR = (8, 6, 6), (8,)


class Product(nn.Module):
    """A matrix product with a stored matrix, inputs first."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 4))

    def forward(self, x):
        return torch.matmul(x, self.weight)


LAYERS = {
    "conv": (lambda: nn.Conv2d(8, 4, 3), IMAGE, 1),
    "conv of one tap": (lambda: nn.Conv2d(8, 4, 1), IMAGE, 1),
    "conv in groups": (lambda: nn.Conv2d(8, 4, 3, groups=2), IMAGE, 1),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8), IMAGE, None),
    "depthwise, two filters a channel": (lambda: nn.Conv2d(8, 16, 3, groups=8), IMAGE, 1),
    "transposed": (lambda: nn.ConvTranspose2d(8, 4, 2), IMAGE, 0),
    "transposed depthwise": (lambda: nn.ConvTranspose2d(8, 8, 2, groups=8), IMAGE, None),
    "one-dimensional": (lambda: nn.Conv1d(8, 4, 3), (8, 6), 1),
    "one-dimensional depthwise": (lambda: nn.Conv1d(8, 8, 3, groups=8), (8, 6), None),
    "linear": (lambda: nn.Linear(8, 4), VECTOR, 1),
    "product": (Product, VECTOR, 0),
}


def layer_of(kind):
    """A layer whose weights are all nearly the largest, of one sign but for a few: as many pairs overflow as can."""
    make, shape, axis = LAYERS[kind]
    layer = make()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight.copy_(1 - 0.2 * torch.rand(layer.weight.shape, generator=generator))
        layer.weight.view(-1)[::7] *= -1
    return layer, torch.rand(2, *shape, generator=generator), axis


def prepared_of(model, x, **config):
    program = quaver.quant_aware(model, {"quantize_op_types": ALL} | config, example_inputs=(x,))
    program.train()(x)
    return program


def weight_quantizer(program):
    (name,) = program.placements.weights
    return program.quantizer(name)


def frozen_integers(program):
    (integers,) = [value for value in quaver.convert(program, save_int8=True)[1].parameters() if value.dtype == torch.int8]
    return integers


def seen_in_training(program, x):
    """The weight as the op reads it in training: the output of its quantizer."""
    seen = []
    handle = weight_quantizer(program).register_forward_hook(lambda _module, _given, result: seen.append(result.detach()))
    program.train()(x)
    handle.remove()
    return seen[0]


def overflows(integers, axis):
    first, second = integers.movedim(axis, 0).float().unflatten(0, (-1, 2)).unbind(1)
    return bool(((first * second > 0) & ((first + second).abs() > 128)).any())


@pytest.mark.parametrize("kind", LAYERS)
def test_the_axis_is_that_of_the_inputs_and_a_depthwise_filter_has_none(kind):
    layer, x, axis = layer_of(kind)

    assert weight_quantizer(prepared_of(layer, x)).saturation_axis == axis


@pytest.mark.parametrize("kind", LAYERS)
def test_training_and_freezing_give_the_same_integers_of_which_none_is_cut(kind):
    layer, x, axis = layer_of(kind)
    program = prepared_of(layer, x)
    quantizer = weight_quantizer(program)

    trained = seen_in_training(program, x)
    frozen = frozen_integers(program)

    plain = (layer.weight / quantizer.per_channel(quantizer.scale, layer.weight)).round().detach()
    assert torch.equal(frozen.float(), plain)
    assert torch.equal(trained, frozen * quantizer.per_channel(quantizer.scale, layer.weight).detach())
    assert axis is None or torch.equal(without_overflow(plain, axis), plain)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_filter_with_large_neighbours_has_a_larger_step_and_at_most_twice_the_step(kind):
    layer, x, axis = layer_of(kind)
    full, safe = (weight_quantizer(prepared_of(layer, x, saturation_safe=on)).threshold for on in (False, True))

    if axis is None:
        assert torch.equal(safe, full)
    else:
        assert (safe > 1.5 * full).all()  # as many pairs as can be are nearly twice the bound
        assert (safe < 2 * full).all()


def test_a_clip_that_ends_the_range_earlier_leaves_pairs_to_be_cut():
    layer, x, axis = layer_of("conv")
    program = prepared_of(layer, x, weight_preprocess_type="PACT")
    with torch.no_grad():
        weight_quantizer(program).preprocess.pact_threshold.fill_(0.5)

    frozen = frozen_integers(program)

    assert not overflows(frozen, axis)
    assert frozen.abs().max() == 127  # the odd ones out, of another sign than their neighbours


@pytest.mark.parametrize("kind", ["conv", "transposed", "linear", "product"])
def test_no_pair_overflows_with_it_and_many_do_without(kind):
    layer, x, axis = layer_of(kind)

    safe, unsafe = (frozen_integers(prepared_of(layer, x, saturation_safe=on)) for on in (True, False))

    assert not overflows(safe, axis)
    assert overflows(unsafe, axis)


def test_a_batch_norm_that_turns_the_sign_leaves_the_pairs_bounded():
    layer, x, axis = layer_of("conv")
    norm = nn.BatchNorm2d(4)
    nn.init.constant_(norm.weight, -1.0)

    frozen = frozen_integers(prepared_of(nn.Sequential(layer, norm), x))

    assert frozen.sum() < 0
    assert not overflows(frozen, axis)


@pytest.mark.parametrize(
    "weight_quantize_type", ["abs_max", "channel_wise_abs_max", "moving_average_abs_max", "range_abs_max"]
)
def test_every_range_rule_of_weights_bounds(weight_quantize_type):
    layer, x, axis = layer_of("conv")

    assert not overflows(frozen_integers(prepared_of(layer, x, weight_quantize_type=weight_quantize_type)), axis)


@pytest.mark.parametrize(
    "config",
    [{"saturation_safe": False}, {"activation_bits": 7}, {"quant_weight_only": True}, {"target": "executorch"}],
    ids=str,
)
def test_weights_are_left_alone_where_nothing_can_overflow_or_nobody_asks(config):
    layer, x, axis = layer_of("conv")
    program = prepared_of(layer, x, **config)

    assert weight_quantizer(program).saturation_axis is None
    assert overflows(frozen_integers(program), axis)


@pytest.mark.parametrize("bits", [4, 7])
def test_weights_of_fewer_bits_are_left_alone(bits):
    layer, x, _ = layer_of("conv")

    safe, unsafe = (frozen_integers(prepared_of(layer, x, weight_bits=bits, saturation_safe=on)) for on in (True, False))

    assert torch.equal(safe, unsafe)


def test_evaluation_computes_with_the_bounded_weights():
    layer, x, _ = layer_of("conv")
    safe, unsafe = (prepared_of(layer, x, saturation_safe=on) for on in (True, False))

    assert torch.equal(safe.eval()(x), quaver.convert(safe)(x))
    assert not torch.equal(safe.eval()(x), unsafe.eval()(x))
    assert torch.allclose(safe.eval()(x), unsafe.eval()(x), rtol=0.02)  # a coarser step, and nothing lost


def test_the_bound_outlasts_a_save(tmp_path):
    layer, x, axis = layer_of("transposed")
    program = prepared_of(layer, x)

    restored = quaver.load(quaver.save(program, tmp_path))

    assert weight_quantizer(restored).saturation_axis == axis
    assert torch.equal(restored.eval()(x), program.eval()(x))


def test_a_quantizer_of_the_users_own_is_not_bounded():
    layer, x, _ = layer_of("conv")

    program = quaver.quant_aware(layer, example_inputs=(x,), weight_quantize_func=lambda weight: weight.sign() * 127)

    quantizer = weight_quantizer(program)
    assert torch.equal(quantizer(layer.weight), layer.weight.sign() * 127)
    assert quantizer.saturation_axis is not None  # for convert, which says so


def test_the_option_takes_true_and_false_only():
    with pytest.raises(ConfigError, match="saturation_safe='yes': takes True or False"):
        QuantizationTransformPass(saturation_safe="yes")
    with pytest.raises(ConfigError, match="saturation_safe=1"):
        quaver.QuantConfig(saturation_safe=1)
