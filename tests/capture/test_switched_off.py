"""With its quantizers switched off, a prepared program is the float model: same outputs, same training."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver


def train(module: nn.Module, steps: int = 20) -> list[float]:
    """Losses of SGD with momentum on fresh random batches; batches, dropout and stochastic depth draw from one seed."""
    torch.manual_seed(11)
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        x, labels = torch.randn(6, 3, 8, 8), torch.randint(5, (6,))
        loss = F.cross_entropy(module(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def prepared(model: nn.Module, images: torch.Tensor, **config) -> quaver.Program:
    program = quaver.quant_aware(model, config, example_inputs=(images,))
    program.apply(quaver.disable_fake_quant)
    return program


CONFIGS = [
    {},
    {"weight_quantize_type": "abs_max", "activation_quantize_type": "abs_max"},
    {"activation_quantize_type": "range_abs_max", "window_size": 3},
    {"quant_weight_only": True},
]


def test_evaluation_equals_the_model_to_float_rounding(net, images):
    program = prepared(net, images)

    given, expected = program.eval()(images), net.eval()(images)

    # batch norm is folded into the convolution here: a handful of float32 roundings
    torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_twenty_steps_of_training_give_the_losses_of_the_float_model(net, images, config):
    twin = copy.deepcopy(net)
    program = prepared(net, images, **config)

    given, expected = train(program), train(twin)

    assert len(set(expected)) == 20
    torch.testing.assert_close(torch.tensor(given), torch.tensor(expected), rtol=1e-6, atol=0)
    torch.testing.assert_close(program.eval()(images), twin.eval()(images), rtol=1e-5, atol=1e-6)


def test_twenty_steps_leave_the_weights_and_running_statistics_of_the_float_model(net, images):
    twin = copy.deepcopy(net)
    program = prepared(net, images)

    train(program)
    train(twin)

    for name, expected in twin.state_dict().items():
        torch.testing.assert_close(program.state_dict()[name], expected, rtol=1e-5, atol=1e-7)


def test_a_captured_program_trains_as_the_model_bit_for_bit(net, images):
    twin = copy.deepcopy(net)
    program = quaver.capture(net, (images,))

    given, expected = train(program), train(twin)

    assert given == expected
    assert all(torch.equal(value, twin.state_dict()[name]) for name, value in program.state_dict().items())


def test_switched_on_the_losses_differ(net, images):
    twin = copy.deepcopy(net)
    program = prepared(net, images)
    program.apply(quaver.enable_fake_quant)

    given, expected = train(program, steps=3), train(twin, steps=3)

    assert given[0] != expected[0]
    assert given == pytest.approx(expected, rel=0.1)


def test_ranges_go_on_being_observed_while_rounding_is_off(net, images):
    program = prepared(net, images)

    program.train()(images)

    assert program.unseen() == []
    assert program.quantizer("x").threshold == images.abs().max()
