"""What backward keeps of a rounded tensor is its integers, and no gradient shows it."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import quaver
from quaver.errors import ConfigError
from quaver.grid import Grid
from quaver.quantizers import build, in_blocks, kept_integers
from quaver.quantizers.arithmetic import _FakeQuantize, scale_of
from quaver.quantizers.in_blocks import RELU, RELU6
from quaver.quantizers.kept_integers import Integers, multiplying, reading
from quaver.quantizers.switches import disable_observer

RULES = ["abs_max", "moving_average_abs_max", "range_abs_max", "learned_step"]
GRIDS = [Grid(bits, signed, narrow) for bits in (2, 5, 8) for signed in (True, False) for narrow in (True, False)]


class Net(nn.Module):
    """A residual block: a tensor with two readers, a ReLU, a ReLU6, a hard-swish, a pool and a linear layer."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)
        self.relu, self.relu6, self.swish = nn.ReLU(), nn.ReLU6(), nn.Hardswish()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.relu(self.norm(self.stem(x)))
        y = self.relu6(self.one(x)) + x
        y = F.max_pool2d(self.swish(self.two(y)), 2)
        return self.head(y.mean((2, 3)))


def images(seed=0):
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def prepared(way, config=None):
    torch.manual_seed(0)
    if way == "graph":
        return quaver.quant_aware(Net(), example_inputs=(images(),), config=config).train()
    net = quaver.QAT(config).quantize(Net().eval())
    with torch.no_grad():
        net(images())
    return net.train()


def gradients(net, monkeypatch, keep, *, bf16=False, steps=2, call=None):
    """The gradients of some steps, added up, and the state behind them."""
    monkeypatch.setenv(kept_integers.SWITCH, str(int(keep)))
    net = copy.deepcopy(net)
    for seed in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = net(images(seed)) if call is None else call(net, images(seed))
        loss.float().square().mean().backward()
    return {f"gradient of {name}": parameter.grad for name, parameter in net.named_parameters()} | dict(net.state_dict())


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.fixture
def saved(monkeypatch):
    """How many bytes of what was saved are integers, and how many as they were."""
    bytes_of = {"integers": 0, "as it is": 0}
    packed = kept_integers._packed

    def counted(value):
        result = packed(value)
        kind = "integers" if isinstance(result, kept_integers.Kept | kept_integers._View) else "as it is"
        bytes_of[kind] += value.nbytes
        return result

    monkeypatch.setattr(kept_integers, "_packed", counted)
    return bytes_of


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("way", ["graph", "eager"])
def test_gradients_are_those_of_float_tensors(way, bf16, monkeypatch, saved):
    net = prepared(way)

    expected = gradients(net, monkeypatch, keep=False, bf16=bf16)
    assert saved["integers"] == 0
    actual = gradients(net, monkeypatch, keep=True, bf16=bf16)

    assert_same(actual, expected)
    assert saved["integers"] > 3 * saved["as it is"]  # indices of the pool, of 8 bytes each


@pytest.mark.parametrize(
    "config",
    [
        *({"activation_quantize_type": rule} for rule in RULES),
        {"weight_quantize_type": "channel_wise_learned_step"},
        {"weight_bits": 4, "activation_bits": 4},
        {"activation_preprocess_type": "PACT", "weight_preprocess_type": "PACT"},
        {"pass_through": True},
    ],
    ids=str,
)
def test_every_rule_keeps_its_gradients(config, monkeypatch, saved):
    net = prepared("graph", config)

    expected, actual = (gradients(net, monkeypatch, keep=keep) for keep in (False, True))

    assert_same(actual, expected)
    assert saved["integers"] > 0


def test_a_loop_with_checkpointing_saves_what_it_wants(monkeypatch, saved):
    net = prepared("graph")
    net.apply(disable_observer)  # which would look twice

    def call(net, x):
        return checkpoint(net, x, use_reentrant=False)

    gradients(net, monkeypatch, keep=True, call=call, steps=1)

    assert saved == {"integers": 0, "as it is": 0}


def test_channels_last_and_a_graph_that_is_retained(monkeypatch):
    monkeypatch.setenv(kept_integers.SWITCH, "1")
    net = prepared("graph").to(memory_format=torch.channels_last)
    loss = net(images().to(memory_format=torch.channels_last)).square().mean()

    once = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    twice = torch.autograd.grad(loss, list(net.parameters()))

    assert all(map(torch.equal, once, twice))


@pytest.fixture(autouse=True)
def switched_on(monkeypatch):
    monkeypatch.setenv(kept_integers.SWITCH, "1")


def rounded(x, bits=8, signed=True):
    return in_blocks.fake_quantize(x, torch.tensor(0.05), Grid(bits, signed, narrow=False), False)


def test_two_readers_share_one_copy(monkeypatch):
    x, weight, packed = rounded(torch.randn(2, 4, 5, 5)), torch.randn(4, 4, 1, 1, requires_grad=True), []
    pack = kept_integers._packed
    monkeypatch.setattr(kept_integers, "_packed", lambda value: packed.append(pack(value)) or packed[-1])

    results = [reading(F.conv2d, x, weight) for _ in range(2)]

    one, two = (kept for kept in packed if isinstance(kept, kept_integers.Kept))
    assert one.integers.data_ptr() == two.integers.data_ptr()
    assert one.integers.dtype == torch.int8
    assert len(results) == 2


def test_a_view_is_kept_as_a_view(saved):
    x = rounded(torch.randn(2, 3, 4))
    weight = torch.randn(5, 3, requires_grad=True)

    reading(torch.matmul, x, torch.randn(4, 5, requires_grad=True)).sum().backward()
    assert saved["integers"] == x.nbytes  # as a matrix of 6 x 4, which is a view
    multiplying(F.linear, x.transpose(1, 2), weight).sum().backward()
    expected, weight.grad = weight.grad, None
    F.linear(x.transpose(1, 2), weight).sum().backward()

    assert torch.equal(weight.grad, expected)


def test_a_tensor_that_was_written_to_is_kept_as_it_is(saved):
    x, weight = rounded(torch.randn(2, 3)), torch.randn(5, 3, requires_grad=True)
    x.add_(0.01)

    reading(F.linear, x, weight).sum().backward()

    assert saved["integers"] == 0
    assert torch.equal(weight.grad, x.sum(0).expand(5, 3))


def test_a_weight_written_to_between_forward_and_backward_is_refused():
    x, weight = rounded(torch.randn(2, 3, requires_grad=True)), torch.randn(5, 3, requires_grad=True)
    loss = reading(F.linear, x, weight).sum()
    with torch.no_grad():
        weight.add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_nan_is_kept_as_it_is(saved):
    x, weight = torch.randn(4, 3), torch.randn(5, 3, requires_grad=True)
    x[1, 2] = torch.nan

    reading(F.linear, rounded(x), weight).sum().backward()

    assert saved["integers"] == 0
    assert weight.grad.isnan().any(0).tolist() == [False, False, True]


def test_a_custom_function_is_left_alone(saved, monkeypatch):
    monkeypatch.setenv(kept_integers.SWITCH, "1")
    net = quaver.QAT(act_quantize_func=lambda x: x * 1, weight_quantize_func=lambda x: x * 1).quantize(Net()).train()

    net(images()).sum().backward()

    assert saved == {"integers": 0, "as it is": 0}


def test_a_switch_that_says_something_else_is_refused(monkeypatch):
    monkeypatch.setenv(kept_integers.SWITCH, "yes")

    with pytest.raises(ConfigError, match="QUAVER_KEEP_INTEGERS='yes'"):
        rounded(torch.randn(3))


# in blocks


def by_expression(x, scale, grid, pass_through):
    return _FakeQuantize.apply(x, scale, grid, pass_through, None, Integers(x.detach(), grid))


def both_ways(function, x):
    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = function(leaf)
    y.backward(torch.linspace(-1, 1, x.numel()).to(x.dtype).view(x.shape))
    return y.detach(), leaf.grad


def assert_same_bits(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        assert one.stride() == other.stride()


def values(dtype=torch.float32):
    """Some that saturate, ties and their neighbours, zeros, and what is not finite; in several blocks, the last not full."""
    ties = (torch.arange(-300, 300) + 0.5) * 0.25
    around = torch.cat([ties, torch.nextafter(ties, ties + 1), torch.nextafter(ties, ties - 1)])
    rest = torch.randn(1003, generator=torch.Generator().manual_seed(0)) * 40
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 6.0, 1e-40, -1e-40])
    return torch.cat([around, rest, special]).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("pass_through", [False, True])
def test_blocks_have_the_bits_of_the_expression(dtype, pass_through, monkeypatch):
    monkeypatch.setattr(in_blocks, "BLOCK", 500)
    for grid in GRIDS:
        for threshold in (grid.high * 0.25, 4.7):
            scale = scale_of(torch.tensor(threshold), grid)

            actual = both_ways(lambda x: in_blocks.fake_quantize(x, scale, grid, pass_through), values(dtype))  # noqa: B023
            expected = both_ways(lambda x: by_expression(x, scale, grid, pass_through), values(dtype))  # noqa: B023

            assert_same_bits(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("clamp", [RELU, RELU6])
@pytest.mark.parametrize("pass_through", [False, True])
def test_a_clamp_in_front_has_its_bits(dtype, clamp, pass_through, monkeypatch):
    monkeypatch.setattr(in_blocks, "BLOCK", 500)
    for grid in GRIDS:
        for threshold in (grid.high * 0.25, 4.7, 6.0, 9.3):
            scale = scale_of(torch.tensor(threshold), grid)

            actual = both_ways(lambda x: in_blocks.fake_quantize(x, scale, grid, pass_through, clamp), values(dtype))  # noqa: B023
            expected = both_ways(lambda x: by_expression(clamp(x), scale, grid, pass_through), values(dtype))  # noqa: B023

            assert_same_bits(actual, expected)


@pytest.mark.parametrize("rule", RULES[:3])
@pytest.mark.parametrize("signed", [True, False])
def test_a_quantizer_behind_a_clamp_observes_what_the_clamp_gives(rule, signed):
    one, other = (build(rule, signed=signed, narrow=False) for _ in range(2))
    for x in (torch.randn(50) * 4, -torch.rand(50), torch.full((5,), torch.nan), torch.randn(50)):
        actual = one.in_one(x, RELU6)

        assert actual is not None
        assert_same_bits([actual], [other(RELU6(x))])

        assert_same_bits(one.state_dict().values(), other.state_dict().values())


@pytest.mark.parametrize(
    "lay",
    [lambda x: x.to(memory_format=torch.channels_last), lambda x: x.transpose(1, 3), lambda x: x[:, :, ::2, 1:]],
    ids=["channels_last", "transposed", "sliced"],
)
def test_any_layout_in_memory(lay):
    x, scale, grid = lay(torch.randn(2, 3, 4, 6)), torch.tensor(0.01), Grid(8, narrow=False)

    actual = both_ways(lambda x: in_blocks.fake_quantize(x, scale, grid, False), x)

    assert_same_bits(actual, both_ways(lambda x: by_expression(x, scale, grid, False), x))


def test_bits_are_kept_only_where_something_saturates():
    grid = Grid(8, narrow=False)

    kept = [in_blocks.rounded(torch.ones(20), torch.tensor(step), grid, False, None, True, None) for step in (0.1, 0.001)]

    assert [one.passing is None for one in kept] == [True, False]
    assert kept[1].passing.numel() == 3
