"""A live model shows in its first forward what cannot be negative; programs read the same from their graphs."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.errors import QuaverWarning


class Two(nn.Module):
    """A convolution, something, and another."""

    def __init__(self, between):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)
        self.between = between

    def forward(self, x):
        return self.last(self.between(self.first(x)))


BETWEEN = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x, inplace=True),
    "relu6": F.relu6,
    "hard sigmoid": F.hardsigmoid,
    "softmax": lambda x: x.softmax(1),
    "clamp": lambda x: x.clamp(0, 3),
    "max pool": lambda x: F.max_pool2d(x.relu(), 2),
    "average pool": lambda x: F.avg_pool2d(x.relu(), 2),
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x.relu(), 2),
    "mean": lambda x: x.relu().mean((2, 3), keepdim=True),
    "reshape": lambda x: x.relu().flatten(2).transpose(1, 2).transpose(1, 2).unflatten(2, (14, 14)),
    "sum": lambda x: x.relu() + x.sigmoid(),
    "product": lambda x: x.relu() * x.sigmoid(),
    "concatenation": lambda x: torch.cat([x.relu()[:, :2], x.sigmoid()[:, 2:]], 1),
    "split": lambda x: torch.cat(x.relu().split(2, 1)[::-1], 1),
    "nearest": lambda x: F.interpolate(x.relu(), scale_factor=2),
    "bilinear": lambda x: F.interpolate(x.relu(), scale_factor=2, mode="bilinear"),
    "dropout": lambda x: F.dropout(x.relu(), 0.5, training=True),
    "nothing": lambda x: x,
    "hard swish": F.hardswish,
    "tanh": torch.tanh,
    "clamp below": lambda x: x.clamp(-1, 3),
    "clamp above": lambda x: x.clamp(max=3),
    "difference": lambda x: x.relu() - 0.5,
    "negative": lambda x: -x.relu(),
    "share": lambda x: x.relu() / 2,
    "negative share in place": lambda x: x.relu().div_(-2),
    "sum with a number": lambda x: x.relu() + 1,
    "sum with alpha": lambda x: torch.add(x.relu(), x.relu(), alpha=-1),
    "half a concatenation": lambda x: torch.cat([x.relu()[:, :2], x[:, 2:]], 1),
    "bicubic": lambda x: F.interpolate(x.relu(), scale_factor=2, mode="bicubic"),
    "relu written over": lambda x: x.relu().sub_(0.5),
}


class Every(nn.Module):
    """All of them side by side: one net, traced once."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(Two(between) for between in BETWEEN.values())

    def forward(self, x):
        return [net(x) for net in self.nets]


@pytest.fixture(scope="module")
def read_from_the_graph():
    program = quaver.quant_aware(Every(), {"quantize_op_types": ["conv2d"]}, example_inputs=(torch.randn(2, 3, 16, 16),))
    titles = [program.placements.roles[f"nets.{index}.last"]["input"] for index in range(len(BETWEEN))]
    return {name: program.quantizer(title).grid for name, title in zip(BETWEEN, titles, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_first_forward_shows_what_a_graph_shows(read_from_the_graph, mode):
    net = quaver.QAT().quantize(Every().train(mode == "train"))

    net(torch.randn(2, 3, 16, 16))

    assert {name: one.last.input_quantizer.grid for name, one in zip(BETWEEN, net.nets, strict=True)} == read_from_the_graph
    assert all(one.first.input_quantizer.grid.signed for one in net.nets)
    assert sum(grid.signed for grid in read_from_the_graph.values()) == 14


def test_images_that_happen_to_be_positive_are_signed():
    net = Two(F.relu)
    quaver.QAT().quantize(net)

    net(torch.rand(2, 3, 8, 8))

    assert net.first.input_quantizer.grid.signed
    assert not net.last.input_quantizer.grid.signed


def test_under_autocast_too():
    net = Two(F.relu)
    quaver.QAT().quantize(net)

    with torch.autocast("cpu", torch.bfloat16):
        net(torch.randn(2, 3, 8, 8))

    assert not net.last.input_quantizer.grid.signed


def test_a_layer_called_on_both_kinds_is_signed():
    net = Two(F.relu)
    net.forward = lambda x: net.last(net.first(x)) + net.last(net.first(x).relu())
    other = Two(F.relu)
    other.forward = lambda x: other.last(other.first(x).relu()) + other.last(other.first(x))
    for one in (net, other):
        quaver.QAT().quantize(one)
        one(torch.randn(2, 3, 8, 8))

        assert one.last.input_quantizer.grid.signed


def test_a_layer_that_the_first_forward_does_not_reach_is_signed():
    net = Two(F.relu)
    net.also = nn.Conv2d(4, 4, 1)
    quaver.QAT().quantize(net)
    net(torch.randn(2, 3, 8, 8))

    net.also(torch.rand(1, 4, 8, 8).relu())

    assert net.also.input_quantizer.grid.signed


def test_after_a_forward_that_failed_the_next_is_watched():
    net = Two(F.relu)
    quaver.QAT().quantize(net)

    with pytest.raises(RuntimeError, match="channels"):
        net(torch.randn(2, 5, 8, 8))
    net(torch.randn(2, 3, 8, 8))

    assert not net.last.input_quantizer.grid.signed
    assert not net._forward_hooks


def test_a_part_of_the_model_called_by_itself_is_watched_by_itself():
    net = nn.Sequential(Two(F.relu), Two(F.relu))
    quaver.QAT().quantize(net)

    net[0](torch.randn(2, 3, 8, 8))
    assert not net[0].last.input_quantizer.grid.signed
    assert net[1]._forward_hooks

    net[1](torch.randn(2, 3, 8, 8))
    assert not net[1].last.input_quantizer.grid.signed


@pytest.mark.slow
@pytest.mark.parametrize("warm", [True, False])
def test_a_compiled_model_has_the_signs_and_the_results_of_the_plain_one(warm):
    torch.manual_seed(0)
    plain, net = Two(F.relu), Two(F.relu)
    net.load_state_dict(plain.state_dict())
    x = torch.randn(2, 3, 8, 8)
    for one in (plain, net):
        quaver.QAT().quantize(one)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=warm)
    if warm:
        plain(x)
        net(x)

    results = [(run(x), run(2 * x)) for run in (plain, compiled)]
    torch._dynamo.reset()

    assert not net.last.input_quantizer.grid.signed
    torch.testing.assert_close(results[1], results[0])
    assert torch.equal(net.last.input_quantizer.threshold, plain.last.input_quantizer.threshold)


@pytest.mark.parametrize("rule", ["moving_average_abs_max", "learned_step"])
def test_negative_values_that_come_later_get_integers_and_a_warning(rule):
    torch.manual_seed(0)
    net = Two(F.relu)
    quaver.QAT({"activation_quantize_type": rule}).quantize(net)
    x = torch.randn(2, 3, 8, 8)
    net(x)
    assert not net.last.input_quantizer.grid.signed
    threshold = net.last.input_quantizer.threshold.clone()

    net.eval()
    assert not net.last.input_quantizer.grid.signed
    net.train().between = torch.tanh
    net(x)
    with pytest.warns(QuaverWarning, match=r"'last.input' has negative values, down to -0\.\d+, and had none in the first"):
        net.eval()

    assert net.last.input_quantizer.grid.signed
    if rule == "learned_step":
        torch.testing.assert_close(net.last.input_quantizer.threshold, threshold)
    net.between = F.relu
    net.train()(x)
    net.eval()  # once is enough
    assert net.last.input_quantizer.grid.signed


def test_negative_values_are_noticed_at_convert_too():
    net, quanter = Two(F.relu), quaver.QAT()
    quanter.quantize(net)
    net(torch.randn(2, 3, 8, 8))
    net.between = torch.tanh
    net(torch.randn(2, 3, 8, 8))

    with pytest.warns(QuaverWarning, match="'last.input' has negative values"):
        frozen = quanter.convert(net, quaver.InputSpec([None, 3, 8, 8]))

    assert torch.equal(frozen(torch.ones(2, 3, 8, 8)), net.eval()(torch.ones(2, 3, 8, 8)))


def test_nan_and_empty_batches_are_not_negative():
    net = Two(F.relu)
    quaver.QAT().quantize(net)
    net(torch.randn(2, 3, 8, 8))

    net(torch.full((2, 3, 8, 8), torch.nan))
    net(torch.zeros(0, 3, 8, 8))
    net.eval()

    assert not net.last.input_quantizer.grid.signed
