"""The place of the right class among all."""

import torch
from torch import Tensor

NEVER = 1 << 62
"""The place of a class whose logit is not a number."""


def label_ranks(logits: Tensor, labels: Tensor) -> Tensor:
    """How many classes come before the label, for each row of ``logits`` (images x classes).

    As if sorted in descending order, stably: of equal logits the lower class comes first, and what is not a number last.

    >>> label_ranks(torch.tensor([[1.0, 3.0, 3.0], [1.0, 3.0, 3.0]]), torch.tensor([1, 2]))
    tensor([0, 1])
    """
    own = logits.gather(1, labels[:, None])
    before = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    ahead = ((logits > own) | ((logits == own) & before)).sum(1)
    return ahead.masked_fill(own[:, 0].isnan(), NEVER)
