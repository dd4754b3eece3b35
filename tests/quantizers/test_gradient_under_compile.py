"""torch 2.11 once lost this gradient without a word."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver

pytestmark = pytest.mark.slow


def gradients(program, run, images):
    program.zero_grad()
    torch.manual_seed(0)
    F.cross_entropy(run(images), torch.arange(len(images)) % 4).backward()
    return [parameter.grad.clone() for parameter in program.parameters()]


@pytest.mark.parametrize("pass_through", [True, False])
def test_a_compiled_program_has_the_gradients_of_the_eager_one(pass_through):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 6), nn.Flatten())
    images = torch.randn(4, 3, 8, 8)
    qat = quaver.quant_aware(model, {"pass_through": pass_through}, example_inputs=(images,)).train()
    qat(images)
    qat.apply(quaver.disable_observer)

    expected = gradients(qat, qat, images)
    compiled = gradients(qat, torch.compile(qat, backend="aot_eager", fullgraph=True), images)

    for ours, theirs in zip(compiled, expected, strict=True):
        assert theirs.abs().sum() > 0 or theirs.numel() == 8  # the first convolution's bias is taken out by batch norm
        assert torch.allclose(ours, theirs, atol=1e-5)
