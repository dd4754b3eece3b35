"""Small nets that many tests share."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # Triton asks when it is first imported, and torch may do that

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver

hypothesis.settings.register_profile("quaver", deadline=None)  # a busy machine must not turn a test red
hypothesis.settings.load_profile("quaver")

torch.set_num_threads(1)  # tiny tensors: threads only get in each other's way
if "PYTEST_XDIST_WORKER" in os.environ:  # what tests start shares the cores with the other workers, too
    os.environ["OMP_NUM_THREADS"] = "1"


class Patterns(nn.Module):
    """Residual add, max and average pools, concat, a tensor that feeds several ops, negative and zero batch-norm gammas."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(16, eps=1e-3, momentum=0.2)
        self.body = nn.Conv2d(16, 16, 3, padding=1)
        self.body_bn = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.depthwise_bn = nn.BatchNorm2d(16)
        self.left = nn.Conv2d(16, 8, 1)
        self.right = nn.Conv2d(16, 8, 3, padding=1)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(16, 10)
        for bn in (self.stem_bn, self.body_bn, self.depthwise_bn):
            nn.init.uniform_(bn.weight, -1, 1)
            nn.init.uniform_(bn.bias, -1, 1)
        self.body_bn.weight.data[3] = 0

    def forward(self, x):
        x = F.relu(self.stem_bn(self.stem(x)), inplace=True)
        x = F.max_pool2d(x, 2)
        x = F.relu6(self.body_bn(self.body(x)) + x)
        x = F.hardswish(self.depthwise_bn(self.depthwise(x)))
        x = torch.cat([self.left(x), F.relu(self.right(x))], 1)
        x = F.avg_pool2d(x, 2)
        return self.fc(self.drop(F.adaptive_avg_pool2d(x, 1).flatten(1)))


@pytest.fixture
def patterns():
    torch.manual_seed(0)
    return Patterns()


@pytest.fixture
def images():
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def train():
    """A few real training steps on noise: enough to move weights, batch-norm statistics and ranges."""

    def run(program, steps=3, shape=(8, 3, 16, 16), classes=10, lr=0.05):
        generator = torch.Generator().manual_seed(2)
        optimizer = torch.optim.SGD(program.parameters(), lr=lr)
        program.train()
        for _ in range(steps):
            loss = F.cross_entropy(
                program(torch.randn(shape, generator=generator)), torch.randint(0, classes, shape[:1], generator=generator)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return program.eval()

    return run


@pytest.fixture
def trained(patterns, images, train):
    return train(quaver.quant_aware(patterns, example_inputs=(images,)))
