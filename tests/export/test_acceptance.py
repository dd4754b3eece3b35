"""The trial of a file after export keeps nobody from a file that is right, and lets no file pass that is wrong."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from exact_nets import SHAPE, conv, frozen
from quaver.engines import DEFAULT
from quaver.errors import EngineError, QuaverWarning
from quaver.export import form_for
from quaver.export.comparison import Comparison, LayerDifference
from quaver.export.exactness import exactness
from quaver.export.integers import Inside, simulation

pytestmark = pytest.mark.slow


class Net(nn.Module):
    """Layers by name, and a forward given as a function of the net and the input."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.steps = forward

    def forward(self, x):
        return self.steps(self, x)


def plain(**options):
    return nn.Conv2d(8, 8, 1, bias=False, **options)


def gated(s, x):
    """What a layer gives, rounded for the next and as it is for a gate."""
    y = s.a(s.stem(x))
    return s.b(y) * torch.sigmoid(y)


def parts_joined(s, x):
    """As in a dual path network: parts of a layer's result are added, and others concatenated."""
    x = s.stem(x)
    y, z = s.a(x), s.b(x)
    return s.c(F.relu(s.norm(torch.cat([y[:, :4] + z[:, :4], y[:, 4:], z[:, 4:]], 1))))


def part_added(s, x):
    """As in ReXNet: a shortcut is added to the first channels."""
    x = s.stem(x)
    y = s.a(x)
    return s.b(torch.cat([y[:, :4] + s.short(x), y[:, 4:]], 1))


def made(forward, config=None, **layers):
    torch.manual_seed(0)
    return form_for(frozen(Net(forward, **layers), **(config or {})), DEFAULT)


def noise():
    return torch.randn(8, *SHAPE, generator=torch.Generator().manual_seed(3))


def assert_runs_as_simulated(program, folder):
    """Export does not refuse it, and every tensor is the simulation's, but for ties behind a sigmoid."""
    file = quaver.export(program, folder)
    result = quaver.verify(program, file, [noise()], threshold=0)
    assert result.passed, result
    return file


def test_tensors_that_are_permuted_are_compared(tmp_path):
    program = made(lambda s, x: s.b(s.a(x).permute(0, 2, 3, 1)), a=conv(act=None), b=nn.Linear(8, 8))

    assert_runs_as_simulated(program, tmp_path)


def test_tensors_that_are_one_in_the_file_are_shown_under_each_name(tmp_path):
    program = made(part_added, stem=conv(act=None), a=conv(act=None), short=conv(8, 4, act=None), b=conv())

    file = assert_runs_as_simulated(program, tmp_path)

    expected, inside = simulation(program), Inside.of(file, simulation(program).scales)
    _, integers = expected.run(noise())
    _, shown = inside.run(noise().numpy())
    assert {"slice", "slice_2"} <= shown.keys()
    assert {name: whole.shape for name, whole in shown.items()} == {name: integers[name].shape for name in shown}
    assert len({place for part in inside.parts for place in part.places.values()}) < len(shown)


LAYERS = {
    "convolution": plain(),
    "grouped": plain(groups=2),
    "depthwise": plain(groups=8),
    "transposed": nn.ConvTranspose2d(8, 8, 2, 2, bias=False),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_what_a_layer_without_bias_gives_is_rounded_for_one_reader_and_not_for_another(tmp_path, layer):
    assert_runs_as_simulated(made(gated, stem=conv(), a=LAYERS[layer], b=conv()), tmp_path)


def test_parts_of_what_layers_give_are_added_and_concatenated(tmp_path):
    layers = {"stem": conv(), "a": plain(), "b": plain(), "norm": nn.BatchNorm2d(12), "c": nn.Conv2d(12, 8, 1)}

    assert_runs_as_simulated(made(parts_joined, **layers), tmp_path)


SUMS = {
    "a layer and a quantized tensor": lambda s, x: s.a(y := s.o(x)) + y,
    "a layer's activation and a quantized tensor": lambda s, x: F.relu(s.a(y := s.o(x))) + y,
    "two quantized tensors": lambda s, x: F.max_pool2d(s.o(x), 3, 1, 1) + F.max_pool2d(s.a(x), 3, 1, 1),
    "two layers": lambda s, x: s.a(y := s.o(x)) + s.b(y),
    "two layers and one more": lambda s, x: s.a(y := s.o(x)) + s.b(y) + s.d(y),
}
BRANCHES = {"o": conv(), "a": conv(act=None), "b": conv(act=None), "d": conv(act=None), "c": conv()}


def claimed(what, config):
    """Whether the last sum of a net is claimed."""
    program = made(lambda s, x: s.c(SUMS[what](s, x)), config, **BRANCHES)
    claims = exactness(program, DEFAULT).tensors
    return [claims[name] for name in claims if name.startswith("elementwise_add")][-1]


@pytest.mark.parametrize("what", SUMS)
def test_sums_of_a_quantized_tensor_are_claimed_bit_for_bit(what):
    assert claimed(what, {})


@pytest.mark.parametrize("what", ["two layers", "two layers and one more"])
def test_sums_of_which_nothing_is_quantized_are_not_claimed(what):
    assert not claimed(what, {"quantize_op_types": ["conv2d"]})


def difference(**counts):
    return LayerDifference(**{"name": "sum", "size": 100_000, "differ": 7, "largest": 1.0} | counts)


@pytest.mark.parametrize(
    ("found", "rare"),
    [
        (difference(beyond=100, farthest=1.7), True),
        (difference(beyond=101, farthest=0.02), False),
        (difference(beyond=1, farthest=2.1), False),
        (difference(beyond=90_000, farthest=0.009), True),
        (difference(beyond=1, farthest=0.6, size=64), True),
        (difference(beyond=2, farthest=0.6, size=64), False),
        (difference(beyond=1, farthest=0.6, size=64, is_output=True), False),
        (difference(not_finite=1), False),
    ],
)
def test_rare_is_what_is_seldom_and_small(found, rare):
    assert found.is_rare is rare


@pytest.fixture(scope="module")
def small():
    return made(lambda s, x: s.b(s.a(x)), a=conv(), b=conv(act=None))


def counted(monkeypatch, **counts):
    """Whatever is compared, the comparison finds these differences."""
    monkeypatch.setattr(Comparison, "layers", lambda _: [difference(**counts)])


def test_rare_roundings_are_one_warning_that_says_where_and_how_many(small, tmp_path, monkeypatch):
    counted(monkeypatch, beyond=7, farthest=0.809)

    with pytest.warns(
        QuaverWarning, match=r"'sum': 7 of 100000 integers differ.* 0\.007 % of a tensor.*quaver\.verify"
    ) as said:
        file = quaver.export(small, tmp_path)

    assert len(said) == 1
    assert file.exists()


@pytest.mark.parametrize("counts", [{"beyond": 101, "farthest": 0.6}, {"beyond": 1, "farthest": 2.1}, {"not_finite": 1}])
def test_what_is_not_rare_is_refused(small, tmp_path, monkeypatch, counts):
    counted(monkeypatch, **counts)

    with pytest.raises(EngineError, match=r"'sum': .* Nothing was written"):
        quaver.export(small, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_outputs_lost_in_noise_are_a_warning_where_every_tensor_follows_from_those_in_front(small, tmp_path, monkeypatch):
    monkeypatch.setattr(Comparison, "signal_to_noise_db", 6.0)
    counted(monkeypatch, beyond=7, farthest=0.809)

    with pytest.warns(QuaverWarning, match=r"'sum': 7 of 100000 integers differ"):
        assert quaver.export(small, tmp_path).exists()


def test_outputs_lost_in_noise_are_refused_where_nothing_else_is_seen(small, tmp_path, monkeypatch):
    counted(monkeypatch, beyond=7, farthest=0.809)
    monkeypatch.setattr(Comparison, "signal_to_noise_db", 9.0)
    monkeypatch.setattr(type(DEFAULT), "reveal", lambda *_: None)

    with pytest.raises(EngineError, match=r"signal-to-noise ratio of 9\.0 dB"):
        quaver.export(small, tmp_path)


@pytest.mark.parametrize(("limit", "sizes"), [(0, [1, 1, 1, 1]), (2**29, [4])])
def test_inputs_are_compared_one_by_one_where_a_network_has_many_integers_inside(limit, sizes, tmp_path, monkeypatch):
    program = made(lambda s, x: s.a(s.stem(x)), stem=conv(), a=plain())
    add, seen = Comparison.add, []

    def counted(self, *tensors, **options):
        seen.append(len(tensors[0]))
        return add(self, *tensors, **options)

    acceptance = importlib.import_module("quaver.export.acceptance")
    monkeypatch.setattr(acceptance, "LARGE", 1)
    monkeypatch.setattr(acceptance, "HUGE", limit, raising=False)
    monkeypatch.setattr(Comparison, "add", counted)

    quaver.export(program, tmp_path)

    assert seen == sizes
