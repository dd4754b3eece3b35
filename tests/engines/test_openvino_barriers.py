"""Where OpenVINO would carry a step further than the file says."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytest.importorskip("openvino")

import quaver

pytestmark = pytest.mark.slow


class Mixer(nn.Module):
    """What a tensor is less, or more, than the average around it: PoolFormer's mixing of tokens."""

    def __init__(self, mix):
        super().__init__()
        self.first, self.last, self.mix = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 1), mix

    def forward(self, x):
        x = self.first(x)
        average = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return self.last(x + self.mix(x, average))


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, average: average - x,
        lambda x, average: x - average,
        lambda x, average: average - 0.25,
        lambda x, average: x.flatten(2).sub(average.relu().flatten(2)).unflatten(2, x.shape[2:]),
    ],
)
def test_an_average_that_is_part_of_a_difference_is_not_rounded(mix, tmp_path):
    torch.manual_seed(0)
    images = torch.randn(4, 3, 16, 16)
    program = quaver.quant_aware(Mixer(mix), example_inputs=(images,)).train()
    program(images)
    frozen = quaver.convert(program.eval())

    file = quaver.export(frozen, tmp_path)

    assert quaver.verify(frozen, file, [images]).passed
