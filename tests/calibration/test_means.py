"""Each means of calibration by itself: what it promises, and where it declines."""

import copy
import itertools

import pytest
import torch
from torch import nn

import quaver
from quaver.calibration.activation_ranges import give, look, nearest_readers, nearest_tensor
from quaver.calibration.batch_norm_correction import reestimate
from quaver.calibration.bias_correction import correct_bias
from quaver.calibration.calibrated_layer import layers_of
from quaver.calibration.equalization import equalize, pairs_of
from quaver.calibration.products import Products, products_of
from quaver.calibration.rounding import round_by_output
from quaver.calibration.sweep import Sweep
from quaver.calibration.weight_ranges import search_thresholds
from quaver.graph.nodes import calls, is_fake_quant, quantizer_of
from quaver.program import EVAL
from quaver.quantizers import ChannelWiseAbsMax


def images(count=16, channels=6, size=8):
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(7))


def normed(inputs, outputs, size=3, groups=1, act=nn.ReLU):
    return [nn.Conv2d(inputs, outputs, size, padding=size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs), act()]


def chain(act=nn.ReLU):
    """Convolution, depthwise, convolution; channels of very different sizes between them."""
    torch.manual_seed(1)
    model = nn.Sequential(*normed(6, 8, act=act), *normed(8, 8, groups=8, act=act), *normed(8, 4, 1, act=act))
    with torch.no_grad():
        for norm in (model[1], model[4]):
            norm.weight.mul_(torch.tensor([1, 0.3, 0.1, 2, 0.02, 1, 0.5, 4]))
            norm.bias.copy_(0.5 * norm.weight)
        for _ in range(20):
            model(images())
    return model.eval()


def prepared(model, config=None, shape=(6, 8, 8)):
    program = quaver.quant_aware(model, config, example_inputs=(torch.zeros(2, *shape),))
    nn.Module.train(program, False)
    return program


@torch.no_grad()
def with_ranges(program, x):
    seen, _ = look(program, [[x]], lambda done: None)
    for tensors in seen.values():
        give(program, tensors, nearest_tensor(tensors))
    return program


def swept(program, x, visit=lambda sweep, node: None):
    """What every node gave in both networks, where ``visit`` may change the program."""
    sweep = Sweep(program, copy.deepcopy(program), [[part] for part in x.split(8)])
    found = {}
    for node in sweep.run(lambda node: visit(sweep, node)):
        if node in sweep.values:
            found[node] = sweep.values[node]
    return found


# the sweep


def test_a_sweep_computes_the_float_and_the_quantized_network():
    program = with_ranges(prepared(chain()), images())
    model = chain()

    last = list(swept(program, images()).values())[-1]

    with torch.no_grad():
        assert torch.allclose(torch.cat(last.floating), model(images()), atol=1e-5)
        step = float((torch.cat(last.rounded) - program(images())).abs().max())
    assert step < 1e-4  # the same integers; sums of floats in another order


def test_a_sweep_keeps_only_what_is_still_to_be_read():
    program = with_ranges(prepared(chain()), images())
    sweep = Sweep(program, program, [[images()]])

    most = max(len(sweep.values) for _ in sweep.run(lambda node: None))

    assert most <= 3 < len(sweep.graph.nodes)


# equalization


def test_equalizing_changes_no_bit_of_the_float_network():
    model = chain()
    with torch.no_grad():
        wanted = model(images())
    program = prepared(model)

    changed = equalize(program, [[images()]])

    with torch.no_grad():
        assert changed == 2
        assert torch.equal(model(images()), wanted)  # the program's tensors are the model's


def test_equalizing_makes_channels_alike_and_the_output_better():
    errors = []
    for equalizes in (False, True):
        model = chain()
        with torch.no_grad():
            wanted = model(images())
            program = quaver.calibrate(model, [images()], {"activation_bits": 5}, equalize=equalizes)
            errors.append(float((program(images()) - wanted).square().mean()))

    assert errors[1] < 0.7 * errors[0]


def test_relu6_is_not_equalized():
    assert len(list(pairs_of(prepared(chain())))) == 2
    assert list(pairs_of(prepared(chain(nn.ReLU6)))) == []


class Shared(nn.Module):
    """Two layers, and an addition that reads the first one's output as well."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.second(x) + x


def test_what_another_op_reads_is_not_equalized():
    assert list(pairs_of(prepared(Shared()))) == []


# ranges of activations


def test_the_range_of_a_tensor_with_an_outlier_ends_before_it():
    program = prepared(nn.Sequential(nn.Conv2d(6, 4, 1)), {"activation_bits": 4})
    x = images()
    x[0, 0, 0, 0] = 40.0

    (tensors,) = [one for one in look(program, [[x]], lambda done: None)[0].values() if one[0].site.rounded]

    assert tensors[0].largest == 40
    assert 2 < nearest_tensor(tensors) < 20


def test_readers_decide_where_they_do_not_read_the_outlier():
    model = nn.Sequential(nn.Conv2d(6, 4, 1, bias=False))
    model[0].weight.data[:, 0] = 0  # the channel with the large values
    x = images()
    x[:, 0] *= 5
    program = with_ranges(prepared(model, {"activation_bits": 4}), x)
    chosen = []

    def visit(sweep, node):
        if is_fake_quant(node):
            (tensor,) = look(program, [[x]], lambda done: None)[0][quantizer_of(node)]
            before = nearest_tensor([tensor])
            chosen.append((before, nearest_readers(sweep, node, tensor, before)))

    swept(program, x, visit)

    ((by_tensor, by_readers),) = chosen
    assert by_readers < 0.8 * by_tensor


class Joined(nn.Module):
    """Two tensors of different size that a concatenation rounds with one step."""

    def __init__(self):
        super().__init__()
        self.small, self.large, self.last = nn.Conv2d(6, 4, 1), nn.Conv2d(6, 4, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x):
        return self.last(torch.cat([self.small(x), 10 * self.large(x)], 1))


def test_tensors_that_share_a_range_are_calibrated_together():
    torch.manual_seed(0)
    model = Joined()

    program = quaver.calibrate(model, [images()])

    with torch.no_grad():
        wanted = model(images())
        assert float((program(images()) - wanted).square().sum() / wanted.square().sum()) < 1e-3
    assert torch.equal(quaver.convert(program)(images()), program(images()))


# ranges and rounding of weights


def layer_and_products(config, shape=(6, 8, 8), groups=1, outputs=4):
    torch.manual_seed(2)
    x = torch.relu(images(32))  # whose channels have a mean: errors that point one way add up
    program = with_ranges(prepared(nn.Sequential(nn.Conv2d(6, outputs, 3, groups=groups)), config), x)
    found = []

    def visit(sweep, node):
        for layer in layers_of(program):
            if layer.node is node:
                found.append((layer, products_of(sweep, layer, centred=False)))

    swept(program, x, visit)
    return found[0]


def error_of(layer, products, wanted):
    integers, scale = layer.quantizer.integers(layer.weight)
    change = integers * layer.quantizer.per_channel(scale, layer.weight) - wanted
    return float(products.noise(layer.in_groups(change)).sum())


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("groups", [1, 2, 6])
@torch.no_grad()
def test_rounding_by_output_errs_less_than_rounding_to_the_nearest(bits, groups):
    layer, products = layer_and_products({"weight_bits": bits}, groups=groups, outputs=12)
    weight = layer.weight.clone()
    products.outputs = layer.in_groups(weight) @ products.inputs  # the weight itself is what is aimed at
    nearest = error_of(layer, products, weight)
    scale = layer.quantizer.integers(weight)[1]

    round_by_output(layer, products)

    assert error_of(layer, products, weight) < 0.95 * nearest
    assert torch.allclose(layer.quantizer.integers(layer.weight)[1], scale)  # the range is what it was


@pytest.mark.parametrize(("sign", "found"), [(1, [1.0, 1.0, 0.0, 0.0]), (-1, [1.0, -1.0, 0.0, 0.0])])
@torch.no_grad()
def test_rounding_by_output_finds_what_trying_everything_finds(sign, found):
    weight = torch.tensor([[1.0, sign * 0.45, sign * 0.4, sign * 0.35]])  # with -1 the output would like less of the first
    squares = torch.full((4, 4), 0.9) + 0.1 * torch.eye(4)
    program = prepared(nn.Sequential(nn.Linear(4, 1)), {"weight_bits": 2}, shape=(4,))
    (layer,) = layers_of(program)
    layer.weight.copy_(weight)
    products = Products(squares[None], (weight @ squares)[None])

    round_by_output(layer, products)

    def error(values):
        return float(products.noise((torch.tensor([values]) - weight)[None]))

    best = min(itertools.product([1.0], *[[-1.0, 0.0, 1.0]] * 3), key=error)  # the first one makes the range
    assert ChannelWiseAbsMax(bits=2)(weight).tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert layer.quantizer(layer.weight).tolist() == [list(best)] == [found]


@torch.no_grad()
def test_rounding_by_output_range_prevents_saturation_from_overflowing():
    layer, products = layer_and_products({"weight_bits": 8}, outputs=32)
    before = layer.weight.clone()

    round_by_output(layer, products)

    integers = layer.quantizer.integers(layer.weight)[0]
    sums = (integers[:, 0::2] + integers[:, 1::2]).abs()
    assert int(sums.max()) <= 128
    assert bool((layer.weight != before).flatten(1).any(1).all())  # no channel had to be given up


@pytest.mark.parametrize("kind", ["channel_wise_abs_max", "abs_max", "channel_wise_learned_step", "learned_step"])
@torch.no_grad()
def test_searched_thresholds_err_less(kind):
    layer, products = layer_and_products({"weight_bits": 3, "weight_quantize_type": kind})
    layer.weight[:, 0, 0, 0] *= 3  # an outlier in every channel
    weight = layer.weight.clone()
    whole = layer.quantizer.largest(weight) if kind == "learned_step" else None
    if whole is not None:
        layer.quantizer.step.copy_(whole / layer.quantizer.grid.high)
    before = error_of(layer, products, weight)

    search_thresholds(layer, products)

    assert error_of(layer, products, weight) < 0.9 * before


# means and variances


@torch.no_grad()
def test_correcting_the_bias_makes_the_means_equal():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    program = with_ranges(prepared(model, {"weight_bits": 3}), images())
    layers = {layer.node: layer for layer in layers_of(program)}

    def visit(sweep, node):
        if node in layers:
            correct_bias(sweep, layers[node])

    def means(found):
        return [[torch.cat(side).mean((0, 2, 3)) for side in (both.floating, both.rounded)] for both in found]

    before = [both for node, both in swept(program, images()).items() if node in layers]
    after = [both for node, both in swept(program, images(), visit).items() if node in layers]

    assert all(not torch.allclose(floating, rounded, atol=1e-3) for floating, rounded in means(before))
    assert all(torch.allclose(floating, rounded, atol=1e-5) for floating, rounded in means(after))


@torch.no_grad()
def test_batch_norm_follows_what_rounding_did_to_mean_and_variance():
    program = with_ranges(prepared(chain(), {"weight_bits": 4}), images())
    norms = [node for node in program.graphs[EVAL].nodes if calls(node, "batch_norm")]

    def visit(sweep, node):
        if node in norms:
            reestimate(sweep, node)

    def spreads(found):
        return [[torch.cat(side).var((0, 2, 3)) for side in (found[n].floating, found[n].rounded)] for n in norms]

    before, after = spreads(swept(program, images())), spreads(swept(program, images(), visit))

    assert all(not torch.allclose(floating, rounded, rtol=1e-2) for floating, rounded in before)
    assert all(torch.allclose(floating, rounded, rtol=1e-3) for floating, rounded in after)
