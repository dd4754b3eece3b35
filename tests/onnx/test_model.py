"""What the ONNX form spells out."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.onnx.editing import array_of
from quaver.onnx.model import attention, model_of


@pytest.mark.parametrize("front", [(2,), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("mask", [None, (6, 6), (1, 6, 6), "whole"])
def test_attention_of_any_rank_is_that_of_four_dimensions(front, mask):
    query, key, value = (torch.randn(*front, 6, 8) for _ in range(3))
    shape = (*front, 6, 6) if mask == "whole" else mask
    given = None if shape is None else torch.randn(shape)

    result = attention(query, key, value, given, scale=0.3)

    torch.testing.assert_close(result, F.scaled_dot_product_attention(query, key, value, given, scale=0.3))


class Resized(nn.Module):
    """Adds a table, in the size of its input, to it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 3, 9, 9))

    def forward(self, x):
        return x + F.interpolate(self.table, x.shape[-2:], mode="bicubic", antialias=True)


def test_what_depends_on_no_input_is_stored_as_pytorch_computes_it():
    net, images = Resized().eval(), torch.randn(2, 3, 4, 4)

    (sum_,) = model_of(quaver.capture(net, (images,)).eval()).graph

    with torch.no_grad():
        expected = net(torch.zeros(1, 3, 4, 4))
    assert sum_.op_type == "Add"
    assert np.array_equal(array_of(sum_.inputs[1]), expected.numpy())


class Parts(nn.Module):
    """Tensors in parts, by their number and by their size; the last part is smaller."""

    def forward(self, x):
        first, second = torch.chunk(x, dim=1, chunks=2)
        *_, third = x.split(3, -1)
        return first - second, third * 2


def test_parts_of_a_tensor_are_told_by_their_sizes():
    graph = model_of(quaver.capture(Parts().eval(), (torch.randn(2, 4, 8, 8),)).eval()).graph

    sizes = [array_of(node.inputs[1]).tolist() for node in graph if node.op_type == "SplitToSequence"]
    assert sizes == [[2, 2], [3, 3, 2]]
