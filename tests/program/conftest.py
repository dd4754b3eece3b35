"""One small model, and programs of it at every stage."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import quaver


class Net(nn.Module):
    """Convolutions, a batch norm, a residual add, dropout, a tied weight, tensors of its own and of its code."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4, eps=1e-3, momentum=0.2)
        self.conv = nn.Conv2d(4, 4, 1)
        self.tied = nn.Conv2d(4, 4, 1)
        self.tied.weight = self.conv.weight
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(16, 5)
        self.gain = nn.Parameter(torch.full((5,), 1.5))
        self.register_buffer("shift", torch.full((5,), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x - torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1))).relu()
        x = self.tied(self.conv(x).relu()) + x
        return self.head(self.dropout(F.adaptive_avg_pool2d(x, 2).flatten(1))) * self.gain + self.shift


def train_a_little(program: quaver.Program, steps: int = 2, seed: int = 5) -> list[float]:
    """Losses of a few steps of SGD with momentum; everything random comes from ``seed``."""
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(program.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(program.train()(torch.randn(6, 3, 8, 8)), torch.randint(5, (6,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="session")
def train() -> Callable[..., list[float]]:
    return train_a_little


@pytest.fixture
def images() -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def captured() -> quaver.Program:
    """Captured once; every test gets a copy."""
    torch.manual_seed(0)
    return quaver.capture(Net(), (torch.zeros(2, 3, 8, 8),))


@pytest.fixture
def program(captured: quaver.Program) -> quaver.Program:
    """As captured."""
    return copy.deepcopy(captured)


@pytest.fixture
def prepared(program: quaver.Program) -> quaver.Program:
    """With quantizers, and not trained yet."""
    return quaver.quant_aware(program)


@pytest.fixture
def trained(prepared: quaver.Program) -> quaver.Program:
    """With quantizers that have seen data."""
    train_a_little(prepared)
    return prepared


@pytest.fixture(scope="session")
def stages(captured: quaver.Program) -> dict[str, quaver.Program]:
    """A program at every stage. Shared by many tests: not to be trained, moved or switched."""
    program = copy.deepcopy(captured)
    trained = quaver.quant_aware(copy.deepcopy(captured))
    train_a_little(trained)
    trained.eval()
    frozen, int8 = quaver.convert(trained, save_int8=True)
    return {
        "float": program,
        "prepared": quaver.quant_aware(program),
        "trained": trained,
        "frozen": frozen,
        "int8": int8,
        "mobile": quaver.passes.TransformForMobilePass().apply(frozen),
        "view": trained.clone(for_test=True),
    }
