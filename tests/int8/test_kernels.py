import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import quaver
from quaver.int8 import kernels

conv2d = torch.ops.aten.conv2d.default


@given(seed=st.integers(0, 1000), channels=st.sampled_from([1, 3, 16]), kernel=st.sampled_from([1, 3]))
@settings(max_examples=25)
def test_a_rescaled_convolution_is_the_integer_convolution_times_the_steps(seed, channels, kernel):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (1, channels, 6, 6), generator=generator)
    weight = torch.randint(-127, 128, (4, channels, kernel, kernel), generator=generator)
    steps = torch.rand(4, generator=generator)
    exact = F.conv2d(x.double(), weight.double())  # integers: exact in float64

    result = kernels.rescaled(conv2d, x.float(), weight.float(), 1.0, steps, None, 1, ([1, 1], [0, 0]))

    assert torch.equal(result, exact.float() * steps.view(1, -1, 1, 1))


def test_an_average_that_ends_in_one_half_stays_exactly_there():
    x = torch.tensor([[[[1.0, 2.0], [2.0, 1.0]]]])  # averages to 1.5

    result = kernels.average(torch.ops.aten.avg_pool2d.default, x, 1.0, ([2, 2],), "avg_pool2d", False)

    assert result.item() == 1.5


def test_folded_batch_norm_is_batch_norm():
    torch.manual_seed(0)
    bn = torch.nn.BatchNorm2d(4, eps=1e-2).eval()
    for value in (bn.weight, bn.bias, bn.running_mean):
        value.data.normal_()
    bn.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 4, 3, 3)

    scale, bias = kernels.fold_batch_norm(torch.ones(4), None, bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.eps)

    folded = x * scale.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)
    assert torch.allclose(folded, bn(x), atol=1e-5)


def test_groups_of_a_transposed_convolution_share_the_weights_steps():
    x, weight, steps = torch.ones(1, 4, 2, 2), torch.ones(4, 3, 1, 1), torch.tensor([1.0, 2.0, 3.0])
    transposed = torch.ops.aten.conv_transpose2d.input

    result = kernels.rescaled(transposed, x, weight, 1.0, steps, None, 1, ([1, 1], [0, 0], [0, 0], 2))

    assert result[0, :, 0, 0].tolist() == [2, 4, 6, 2, 4, 6]


class Divisors(TorchDispatchMode):
    """Notes what tensors are divided by."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten.div, torch.ops.aten.div_):
            self.seen.append(args[1])
        return func(*args, **(kwargs or {}))


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body, self.last = (torch.nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))

    def forward(self, x):
        x = F.relu(self.stem(x))
        return self.last(F.relu(self.body(x) + x))


def test_an_int8_program_divides_by_tensors_alone(images):
    """CUDA multiplies with the reciprocal of a number: another last bit than the engine's, and than this machine's."""
    program = quaver.quant_aware(Residual(), example_inputs=(images,)).train()
    program(images)
    int8 = quaver.convert(program, save_int8=True)[1]

    with torch.no_grad(), Divisors() as divisors:
        int8(images)

    assert divisors.seen, "the residual sum divides by its unit"
    assert all(isinstance(divisor, torch.Tensor) for divisor in divisors.seen)
