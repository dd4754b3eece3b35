"""The largest of values of which several are equal: a detector chooses its queries so."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.engines import ENGINES

pytestmark = pytest.mark.slow


class Chosen(nn.Module):
    """The places with the largest and the smallest scores, of which many are alike."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        scores = F.relu(self.scores(x) - 0.5).flatten(2).amax(1).round()
        values, places = torch.topk(scores, 20, dim=1)
        return values, places, torch.topk(scores, 20, largest=False).indices


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_of_equal_values_the_first_are_taken(target, tmp_path):
    if not ENGINES[target].can_write:
        pytest.skip(f"{target} is not installed")
    torch.manual_seed(0)
    images = torch.randn(4, 3, 8, 8)
    program = quaver.quant_aware(Chosen(), {"target": target}, example_inputs=(images,)).train()
    program(images)
    frozen = quaver.convert(program.eval())
    run = quaver.runtime.load(quaver.export(frozen, tmp_path, target=target))

    for given, expected in zip(run(images.numpy()), frozen(images), strict=True):
        np.testing.assert_array_equal(given, expected.numpy())
