"""Constants per channel in front of a rounding, where OpenVINO takes in some of them by itself."""

import pytest
import torch
from torch import nn

pytest.importorskip("openvino")

import quaver

pytestmark = pytest.mark.slow


class Multiple(nn.Module):
    """A multiple of what a layer gives, and what it gives."""

    def __init__(self, combine, bias):
        super().__init__()
        self.first, self.last, self.combine = nn.Conv2d(3, 8, 3, bias=bias), nn.Conv2d(8, 4, 1), combine

    def forward(self, x):
        return self.last(self.combine(self.first(x)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "combine", [lambda x: x * 2 + x, lambda x: x.flip(1) + x * 1.5, lambda x: (x * 0.5 + 1) + x, lambda x: x * -2 + x]
)
def test_the_bias_of_a_layer_is_not_taken_for_a_norms(combine, bias, tmp_path):
    torch.manual_seed(0)
    images = torch.randn(4, 3, 16, 16)
    program = quaver.quant_aware(Multiple(combine, bias), example_inputs=(images,)).train()
    program(images)
    frozen = quaver.convert(program.eval())

    assert quaver.verify(frozen, quaver.export(frozen, tmp_path), [images]).passed
