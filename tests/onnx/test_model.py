"""What the ONNX form spells out."""

import pytest
import torch
import torch.nn.functional as F

from quaver.onnx.model import attention


@pytest.mark.parametrize("front", [(2,), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("mask", [None, (6, 6), (1, 6, 6), "whole"])
def test_attention_of_any_rank_is_that_of_four_dimensions(front, mask):
    query, key, value = (torch.randn(*front, 6, 8) for _ in range(3))
    shape = (*front, 6, 6) if mask == "whole" else mask
    given = None if shape is None else torch.randn(shape)

    result = attention(query, key, value, given, scale=0.3)

    torch.testing.assert_close(result, F.scaled_dot_product_attention(query, key, value, given, scale=0.3))
