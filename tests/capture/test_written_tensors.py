"""Tensors that a model writes to: what has to stay float for it, and buffers that change their shape."""

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import QuaverWarning


class WritesIntoScores(nn.Module):
    """A layer, and scores that are written to; they share the size of their batch, and no memory."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        values = self.layer(x).reshape(x.shape[0], 5, 2, 4).transpose(1, 2)
        scores = (values @ values.transpose(-2, -1)).reshape(x.shape[0], 2, 5, 5)
        scores[:, :, 1:] = scores[:, :, 1:] + 1
        return self.head((scores.softmax(-1) @ values).transpose(1, 2).reshape(x.shape[0], 5, 8))


class MakesItsTable(nn.Module):
    """A table as long as the input, made at the first call."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("table", torch.zeros(1), persistent=False)

    def forward(self, x):
        if self.table.shape[0] != x.shape[1]:
            self.table = torch.arange(x.shape[1]).float()
        return self.layer(x) + self.table[:, None]


def test_only_what_shares_memory_with_a_written_tensor_stays_float():
    program = quaver.quant_aware(WritesIntoScores(), example_inputs=(torch.zeros(2, 5, 6),))

    assert {op.name for op in program.ops() if op.type == "mul" and op.quantized} == {"layer", "head"}


def test_a_table_of_another_size_is_made_in_the_graph_and_warned_of():
    model, x = MakesItsTable(), torch.randn(3, 5, 6)

    with pytest.warns(QuaverWarning, match="buffer 'table' gets another shape in forward"):
        program = quaver.capture(model, (x,)).eval()

    assert torch.equal(program(x), model.eval()(x))
