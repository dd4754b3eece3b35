"""How many operations a quantizer takes: on an accelerator each is a launch, and small networks wait for nothing else."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from quaver.quantizers import ChannelWiseAbsMax, MovingAverageAbsMax


class Counted(TorchDispatchMode):
    """Counts what is computed under it."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("quantizer", "forward"),
    [
        (ChannelWiseAbsMax(axis=0), 10),
        (ChannelWiseAbsMax(axis=0, pairs=1), 21),
        (MovingAverageAbsMax(narrow=False), 31),
        (MovingAverageAbsMax(narrow=False, signed=False), 30),
    ],
)
def test_a_step_takes_few_operations(quantizer, forward):
    x = torch.randn(4, 6, 3, 3, requires_grad=True)
    quantizer(x)

    with Counted() as there:
        y = quantizer(x)
    with Counted() as back:
        y.backward(torch.ones_like(x))

    assert there.count <= forward
    assert back.count <= 5  # one of them gives autograd its gradient
