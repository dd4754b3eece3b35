"""Constants for each position that are added to what a convolution gives: a table of positions behind its layer."""

import pytest
import torch
from torch import nn

pytest.importorskip("openvino")

import quaver

pytestmark = pytest.mark.slow


class Positions(nn.Module):
    """A convolution, with a batch norm or without, and a table of positions."""

    def __init__(self, norm):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *norm)
        self.table, self.last = nn.Parameter(torch.randn(1, 16, 32, 32) / 3), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        return self.last(self.first(x) + self.table)


@pytest.mark.parametrize("norm", [(), (nn.BatchNorm2d(16),)], ids=["bare", "norm"])
def test_the_table_is_added_as_in_the_simulation(norm, tmp_path):
    torch.manual_seed(0)
    images = torch.randn(64, 3, 32, 32)
    program = quaver.quant_aware(Positions(norm), example_inputs=(images,)).train()
    program(images)
    frozen = quaver.convert(program.eval())

    file = quaver.export(frozen, tmp_path)

    assert not [tensor for tensor in quaver.verify(frozen, file, [images]).layers if tensor.differ]
