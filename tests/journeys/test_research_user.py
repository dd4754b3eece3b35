"""A user who does research: rules, bits and functions of their own, and a look at every layer."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from tiny import Tiny

pytestmark = pytest.mark.slow

EXAMPLE = (torch.zeros(1, 3, 8, 8),)
WITH_WEIGHTS = {"stem.0", "body.0", "head"}
LSQ = {"weight_quantize_type": "channel_wise_learned_step", "activation_quantize_type": "learned_step"}


def data(count=6):
    """Images whose brightness is their class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (count * 16,), generator=generator)
    images = torch.randn(count * 16, 3, 8, 8, generator=generator) / 4 + labels[:, None, None, None] / 2
    return list(zip(images.split(16), labels.split(16), strict=True))


def fitted(program, epochs=2):
    optimizer = torch.optim.SGD(program.parameters(), 0.02, momentum=0.9)
    program.train()
    for images, labels in data() * epochs:
        optimizer.zero_grad()
        F.cross_entropy(program(images), labels).backward()
        optimizer.step()
    return program.eval()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return fitted(Tiny(), epochs=4)


def as_it_runs(program, folder, images):
    """What the engine gives, which is what was trained, bit for bit."""
    frozen = quaver.convert(program)
    given = quaver.runtime.load(quaver.export(frozen, folder))(images.numpy())
    with torch.no_grad():
        assert np.array_equal(given, program.eval()(images).numpy())
    return given


def test_learned_steps_learn_and_run(model, tmp_path):
    program = quaver.quant_aware(model, LSQ, example_inputs=EXAMPLE)
    program.train()(data()[0][0])
    before = [step.detach().clone() for step in program.quantizer_parameters()]

    fitted(program)

    assert before
    assert any(not torch.equal(old, new) for old, new in zip(before, program.quantizer_parameters(), strict=True))
    as_it_runs(program, tmp_path, data()[0][0])


def test_the_layers_that_hurt_are_found_and_get_more_bits(model, tmp_path):
    found = quaver.analyze(model, data(), {"weight_bits": 3}, sensitivity_images=96)
    worst = next(layer.name for layer in found.worst_first() if layer.name in WITH_WEIGHTS)
    everywhere = quaver.quant_aware(model, {"weight_bits": 3}, example_inputs=EXAMPLE)
    but_there = quaver.quant_aware(model, {"weight_bits": 3, "layer_bits": {worst: 8}}, example_inputs=EXAMPLE)

    errors = []
    for program in (everywhere, but_there):
        for images, _ in data():
            program.train()(images)
        with torch.no_grad():
            images = data()[0][0]
            errors.append(float((program.eval()(images) - model(images)).square().mean()))

    assert {layer.name for layer in found.layers} >= WITH_WEIGHTS
    assert found.sensitivity.quantized.accuracy <= found.sensitivity.floating.accuracy
    assert errors[1] < errors[0]
    as_it_runs(but_there, tmp_path, data()[0][0])


class Ternary(nn.Module):
    """A quantizer of their own: weights of minus one, zero and one times a scale that is learned."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.2))

    def forward(self, weight):
        steps = (weight / self.scale).clamp(-1, 1)
        return (steps + (steps.round() - steps).detach()) * self.scale


def test_a_quantizer_of_their_own_trains_and_runs(model, tmp_path):
    program = quaver.quant_aware(model, weight_quantize_func=Ternary, example_inputs=EXAMPLE)

    fitted(program)

    scales = [parameter.item() for name, parameter in program.named_parameters() if name.endswith("function.scale")]
    assert len(scales) == 3
    assert all(scale != pytest.approx(0.2) for scale in scales)
    as_it_runs(program, tmp_path, data()[0][0])
