"""Averages that nothing rounds: the engine's last bits, which decide ties further down."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytest.importorskip("openvino")

import numpy as np

import quaver

pytestmark = pytest.mark.slow

AVERAGES = {
    "windows": lambda x: F.avg_pool2d(x, 3, 1),
    "oblong windows": lambda x: F.avg_pool2d(x, (5, 3), 2),
    "padding counted": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "padding not counted": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "beyond the edge": lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "beyond the edge and padded": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "another divisor": lambda x: F.avg_pool2d(x, 3, divisor_override=7),
    "another divisor, padding not counted": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False, divisor_override=5),
    "so many windows": lambda x: F.adaptive_avg_pool2d(x, (6, 3)),
    "windows of several sizes": lambda x: F.adaptive_avg_pool2d(x, (7, 4)),
    "all": lambda x: F.adaptive_avg_pool2d(x, 1),
    "of rows": lambda x: x.mean(3),
    "of planes": lambda x: x.mean((2, 3), keepdim=True),
}


class Averaged(nn.Module):
    """What a convolution reads, and its averages, which are an output."""

    def __init__(self, average, activation):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 4, 1)
        self.average, self.activation = average, activation

    def forward(self, x):
        x = self.activation(self.first(x))
        return self.last(x), self.average(x)


@pytest.mark.parametrize("activation", [nn.Identity(), nn.ReLU()], ids=["signed", "unsigned"])
@pytest.mark.parametrize("name", AVERAGES)
def test_every_bit_is_the_engines(tmp_path, name, activation):
    torch.manual_seed(0)
    images = torch.randn(4, 3, 18, 18)
    program = quaver.quant_aware(Averaged(AVERAGES[name], activation), example_inputs=(images,)).train()
    program(images)
    frozen = quaver.convert(program.eval())
    run = quaver.runtime.load(quaver.export(frozen, tmp_path))

    np.testing.assert_array_equal(run(images.numpy())[1], frozen(images)[1].numpy())
