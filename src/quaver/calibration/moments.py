"""Mean and variance of each channel of a tensor that comes in batches."""

import torch
from torch import Tensor


def moments_of(values: list[Tensor], axis: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over all batches, in double precision."""
    others = [dim for dim in range(values[0].dim()) if dim != axis % values[0].dim()]
    shares = torch.tensor([len(value) for value in values], dtype=torch.float64, device=values[0].device)
    shares /= shares.sum()
    variances, means = zip(*(torch.var_mean(value, others, correction=0) for value in values), strict=True)
    mean = shares @ torch.stack(means).double()
    squares = shares @ (torch.stack(variances).double() + (torch.stack(means).double() - mean).square())
    return mean, squares
