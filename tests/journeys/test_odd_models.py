"""Models written in ways that once broke a stage: each goes all the way, or says why an op stays float."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.passes import TransformForMobilePass

pytestmark = pytest.mark.slow

IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Odd(nn.Module):
    """Two convolutions, and a forward that is given."""

    def __init__(self, forward):
        super().__init__()
        self.a = nn.Conv2d(3, 4, 3, padding=1)
        self.b = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.vector = nn.Parameter(torch.randn(8))
        self.register_buffer("gain", torch.full((4, 1, 1), 2.0))
        self.given = forward

    def forward(self, x):
        return self.given(self, x)


def slice_assignment(self, x):
    y = self.a(x).clone()
    y[:, :2] = y[:, :2] * 2
    return self.b(y)


def shift_into_zeros(self, x):
    y = self.a(x)
    out = torch.zeros_like(y)
    out[:, 1:] = y[:, :-1]
    return self.b(out)


def one_weight_quantized_and_float(self, x):
    y = self.b(F.relu(self.a(x)))
    with quaver.name_scope("skip_quant"):
        return self.b(y)


def batch_statistics_always(self, x):
    y = F.batch_norm(self.a(x), None, None, self.bn.weight, self.bn.bias, True)
    return self.b(y)


def vector_product(self, x):
    return self.a(x) @ self.vector


def copies_between(self, x):
    return self.b(F.relu(self.a(x)).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).clone())


def more_in_evaluation(self, x):
    y = self.a(x)
    return y if self.training else y * y.sigmoid() + y


def more_in_training(self, x):
    y = F.relu(self.a(x))
    return (self.b(y), y) if self.training else self.b(y)


def without_gradient(self, x):
    with torch.no_grad():
        y = F.relu(self.a(x))
    return self.b(y)


def constants_from_buffers(self, x):
    return self.b(self.a(x) * (self.gain * 2).rsqrt() + self.gain.neg())


def pool_padded_with_infinity(self, x):
    return self.b(F.max_pool2d(F.pad(self.a(x), (1, 1, 1, 1), value=float("-inf")), 3, 1))


def dropout_in_place(self, x):
    return self.b(F.dropout2d(F.relu(self.a(x)), 0.3, self.training, inplace=True))


def average_behind_relu(self, x):
    return self.b(F.interpolate(F.avg_pool2d(F.relu(self.a(x)), 2), scale_factor=2))


FORWARDS = [
    value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", "") == __name__
]
FORWARDS = [value for value in FORWARDS if not isinstance(value, type)]


def first(result):
    return result if isinstance(result, torch.Tensor) else result[0]


def prepared_of(forward):
    torch.manual_seed(0)
    model = Odd(forward)
    # of untrained weights, which lie evenly, many more would be bounded than of trained ones: too far from the float model
    qat = quaver.quant_aware(model, {"saturation_safe": False}, example_inputs=(IMAGES,))
    optimizer = torch.optim.SGD(qat.parameters(), lr=0.01)
    for _ in range(2):
        loss = first(qat.train()(IMAGES)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), qat.eval()


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda forward: forward.__name__)
def test_an_odd_model_goes_all_the_way(forward, tmp_path):
    model, qat = prepared_of(forward)

    frozen, int8 = quaver.convert(qat, save_int8=True)
    mobile = TransformForMobilePass().apply(frozen)

    assert torch.equal(frozen(IMAGES), qat(IMAGES))
    assert torch.equal(int8(IMAGES), frozen(IMAGES))
    assert torch.equal(quaver.load(quaver.save(int8, tmp_path))(IMAGES), int8(IMAGES))
    reach = model(IMAGES).abs().max()
    assert (qat(IMAGES) - model(IMAGES)).abs().max() < 0.1 * reach
    assert (mobile(IMAGES) - frozen(IMAGES)).abs().max() < 0.1 * reach
    off = qat.clone(for_test=True)
    off.apply(quaver.disable_fake_quant)
    assert torch.allclose(off(IMAGES), model(IMAGES), atol=1e-4 * reach.item())


@pytest.mark.parametrize(
    ("forward", "op", "reason"),
    [
        (slice_assignment, "b", "the model writes into this tensor in place"),
        (one_weight_quantized_and_float, "b_1", "contains the skip pattern 'skip_quant'"),
        (vector_product, "matmul", "one of its operands is a parameter"),
        (more_in_evaluation, "elementwise_add", "it runs only in evaluation"),
        (constants_from_buffers, "elementwise_mul", "one of its operands is a parameter"),
        (pool_padded_with_infinity, "pool2d", "padded with infinity"),
    ],
)
def test_what_stays_float_says_why(forward, op, reason):
    _, qat = prepared_of(forward)

    (record,) = [record for record in qat.ops() if record.name == op]

    assert not record.quantized
    assert reason in record.reason


def test_an_average_of_what_is_never_negative_is_unsigned():
    _, qat = prepared_of(average_behind_relu)

    signed = {name: quantizer.grid.signed for name, quantizer in qat.quantizers()}

    assert not signed["pool2d.output"]
    assert signed["x"]


def test_one_tensor_given_for_two_inputs_is_captured_as_two():
    class Difference(nn.Module):
        def forward(self, x, y):
            return x - y

    program = quaver.capture(Difference(), (IMAGES, IMAGES))

    assert torch.equal(program(IMAGES, 2 * IMAGES), -IMAGES)
