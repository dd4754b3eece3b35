"""Whether a tensor has NaN or Inf in it: a trace says no. Hugging Face's DETR asks in training."""

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import CaptureError

ASKED = {
    "finite": lambda x: not torch.isfinite(x).all(),
    "method": lambda x: not x.isfinite().all().item(),
    "nan or inf": lambda x: torch.isnan(x).any() or torch.isinf(x).any(),
    "combined": lambda x: (torch.isnan(x) | ~torch.isfinite(x)).any(),
}


class Clamping(nn.Module):
    def __init__(self, asked):
        super().__init__()
        self.asked = asked

    def forward(self, x):
        x = x * 3
        return x.clamp(-1, 1) if self.training and self.asked(x) else x


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_the_side_without_nan_is_captured(asked):
    x = torch.linspace(-5, 5, 6).reshape(2, 3)

    program = quaver.capture(Clamping(asked), (x,)).train()

    assert torch.equal(program(x), x * 3)
    assert program.signature.dynamic_batch


def test_an_answer_that_other_values_have_a_part_in_is_not_known():
    model = Clamping(lambda x: (torch.isfinite(x) & (x > 0)).all())

    with pytest.raises(CaptureError, match="depends on the values in a tensor"):
        quaver.capture(model, (torch.ones(2, 3),))
