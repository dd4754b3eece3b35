"""Bytes on the grid of an input: a product and a sum that give the integers of the definition, however they are computed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import quaver
from quaver.engines import ENGINES
from quaver.export import form_for
from quaver.program.image_bytes import affine_for, integers_of
from quaver.program.quantized_tensors import quantized_tensors

BYTES = np.arange(256, dtype=np.float32)
CONV = nn.Conv2d(3, 4, 3)


def program_for(largest, target="openvino", net=CONV):
    """A frozen program whose input reaches just so far."""
    qat = quaver.quant_aware(net, {"target": target}, example_inputs=(torch.zeros(2, 3, 8, 8),)).train()
    images = torch.rand(2, 3, 8, 8)
    images[0, 0, 0, 0], images[0, 0, 0, 1] = largest, -largest
    qat(images)
    return form_for(quaver.convert(qat), ENGINES[target])


def integers(values, tensor):
    return np.rint(values / np.float32(tensor.step)).clip(tensor.low, tensor.high)


@settings(max_examples=25)
@given(
    target=st.sampled_from(["openvino", "onnx"]),
    largest=st.floats(0.05, 10),
    mean=st.floats(0, 1),
    std=st.floats(0.05, 1),
)
def test_every_byte_gets_the_integer_of_the_definition(target, largest, mean, std):
    program, image = program_for(largest, target), quaver.ImageInput((mean, 0.5, 0.4), (std, 0.25, 1.0))
    (tensor,) = [tensor for tensor in quantized_tensors(program) if tensor.name == "input"]
    wanted = integers_of(program, tensor, image.table())

    affine = affine_for(program, image)

    assert affine is not None
    factor, shift = affine.factor[:, None], affine.shift[:, None]
    assert np.array_equal(integers(BYTES * factor + shift, tensor), wanted)
    in_one = (BYTES.astype(np.float64) * factor.astype(np.float64) + shift.astype(np.float64)).astype(np.float32)
    assert np.array_equal(integers(in_one, tensor), wanted)
    moved = (BYTES + (shift / factor)) * factor  # as engines that move the sum in front
    assert np.array_equal(integers(moved, tensor), wanted)


def test_bytes_that_lie_on_ties_have_no_such_product():
    image = quaver.ImageInput((0,) * 3, (1,) * 3, unit=1)  # 0 … 255

    assert affine_for(program_for(127.0), image) is not None  # a step is a byte
    assert affine_for(program_for(254.0), image) is None  # a step is two: every other byte is between two integers


@pytest.mark.parametrize("first", [nn.Softmax(1), nn.Sigmoid()])
def test_an_input_that_is_not_rounded_first_has_none(first):
    program = program_for(1.0, net=nn.Sequential(first, nn.Conv2d(3, 4, 3)))

    assert affine_for(program, quaver.ImageInput((0.5,) * 3, (0.5,) * 3)) is None
