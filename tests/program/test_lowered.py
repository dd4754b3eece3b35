"""What evaluation computes, on programs made by hand: integers, rescaled once."""

import pytest
import torch
import torch.nn.functional as F

from graphs import HandMade, aten, reading, weighted
from quaver.engines import ENGINES
from quaver.passes.placement import place
from quaver.quantizers.arithmetic import StorageFormat


@pytest.fixture
def made():
    return HandMade()


@pytest.fixture
def images():
    return torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def trained(made, plan, *outputs, images):
    """A prepared program with other weights than ones, which has seen the images."""
    program = place(made.program(*outputs), ENGINES["openvino"], lambda ops, planned: (plan, {}))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in program.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    program.train()(images)
    return program.eval()


def convolution(made, x):
    weight, bias = made.parameter("conv.weight", 4, 3, 3, 3), made.parameter("conv.bias", 4)
    return made.op("conv", aten.conv2d.default, x, weight, bias)


def on_integers(program, images):
    """A convolution by hand: integers of images and weight, their steps, one product and one sum per channel."""
    x, x_step = program.quantizer("x").integers(images)
    weight, steps = program.quantizer("conv.weight").integers(program.get_parameter("conv.weight"))
    assert torch.equal(x, x.round())
    assert torch.equal(weight, weight.round())
    steps = steps.flatten()[:, None, None]
    return F.conv2d(x, weight) * (x_step * steps) + program.get_parameter("conv.bias")[:, None, None]


def functions(program):
    return [node.target for node in program.lowered().nodes if node.op == "call_function"]


def test_a_quantized_convolution_convolves_integers_and_rescales_once(made, images):
    conv = convolution(made, made.input("x", 2, 3, 6, 6))
    program = trained(made, {"conv": weighted()}, conv, images=images)

    (result,) = program(images)

    assert torch.equal(result, on_integers(program, images))
    assert aten.conv2d.default not in functions(program)


def test_an_average_is_taken_over_integers(made, images):
    pool = made.op("pool", aten.avg_pool2d.default, made.input("x", 2, 3, 6, 6), [3, 3])
    program = trained(made, {"pool": reading(0)}, pool, images=images)
    integers, step = program.quantizer("x").integers(images, StorageFormat(shifted=False))

    (result,) = program(images)

    assert torch.equal(result, F.avg_pool2d(integers, 3) * step)


def test_what_is_not_planned_is_computed_as_it_was(made, images):
    x = made.input("x", 2, 3, 6, 6)
    conv = convolution(made, x)
    bent = made.op("bent", aten.tanh.default, conv)
    program = trained(made, {"conv": weighted()}, bent, images=images)

    (result,) = program(images)

    assert torch.equal(result, torch.tanh(on_integers(program, images)))
    assert functions(program).count(aten.tanh.default) == 1


def test_a_program_without_quantizers_is_its_own_lowering(made):
    conv = convolution(made, made.input("x", 2, 3, 6, 6))
    program = made.program(made.op("relu", aten.relu.default, conv))

    assert functions(program) == [aten.conv2d.default, aten.relu.default]
