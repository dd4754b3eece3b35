"""A small model with all that training and evaluation treat differently, and images for it."""

import pytest
import torch
from torch import Tensor, nn

import quaver


class StochasticDepth(nn.Module):
    """Leaves a branch out for some samples of a training batch."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.keep = 1 - p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = torch.empty(x.shape[0], 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(self.keep)
        return x * kept / self.keep


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels, eps=0.01, momentum=0.3)
        self.depth = StochasticDepth(0.3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.depth(self.norm(self.conv(x)))
        y += x
        return self.relu(y)


class Net(nn.Module):
    """Batch norms of their own eps and momentum, dropout, stochastic depth, an in-place ReLU, ``y += x``."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6, eps=1e-3, momentum=0.05), nn.ReLU6())
        self.block = Residual(6)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.dropout = nn.Dropout(0.4)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.stem(x))
        return self.head(self.dropout(self.pool(x).flatten(1)))


def build() -> Net:
    torch.manual_seed(0)
    model = Net()
    for norm in (model.stem[1], model.block.norm):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
        nn.init.uniform_(norm.running_mean, -0.5, 0.5)
        nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return model


@pytest.fixture
def net() -> Net:
    """The model, with batch norms that are not the identity."""
    return build()


@pytest.fixture(scope="session")
def captured() -> quaver.Program:
    """The model's program, to be looked at: not to be trained or moved."""
    return quaver.capture(build(), (torch.zeros(4, 3, 8, 8),))


@pytest.fixture
def images() -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
