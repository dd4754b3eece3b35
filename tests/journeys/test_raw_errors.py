"""Ops that once ended in another library's error: a network of them is exported, and its file computes what was trained."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

import quaver

pytestmark = pytest.mark.slow


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, 8)

    def forward(self, unread, x):
        x = x + self.attention(x, x, x)[0]  # its weights are computed, too, and nobody reads them
        x = x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1))  # of three dimensions
        windows = self.qkv(x).unflatten(1, (3, 2, 2)).chunk(3, -1)  # of five
        mask = torch.ones(2, 2, 2, dtype=torch.bool).tril()
        x = x + F.scaled_dot_product_attention(*windows, attn_mask=mask).flatten(1, 3)
        x = x * x.abs().mean().item()
        _, x = while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, torch.sin(y)), (torch.zeros((), dtype=torch.long), x))
        return self.head(x)


def test_they_are_exported(tmp_path):
    torch.manual_seed(0)
    given = torch.zeros(2, dtype=torch.bool), torch.randn(2, 12, 16)
    program = quaver.quant_aware(Odd(), example_inputs=given)
    program(*given)
    frozen = quaver.convert(program.eval())

    run = quaver.runtime.load(quaver.export(frozen, tmp_path))

    assert torch.equal(frozen(*given), program(*given))
    assert [given.name for given in run.inputs] == ["unread", "x"]
    assert quaver.verify(frozen, tmp_path, [tuple(tensor.numpy() for tensor in given)]).passed
