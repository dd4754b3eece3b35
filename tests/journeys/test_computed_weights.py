"""Weights that a model computes from its parameters: rounded in training behind what computes them, integers once frozen."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

import quaver


class StandardisedConv(nn.Conv2d):
    """Weight standardisation as timm's StdConv2d has it."""

    def forward(self, x):
        rows = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(rows, None, None, training=True, momentum=0.0, eps=1e-6).reshape_as(self.weight)
        return self._conv_forward(x, weight, self.bias)


class DropConnect(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, F.dropout(self.weight, 0.5, self.training), self.bias)


class Cut(nn.Conv2d):
    """One filter of another size than it is stored with."""

    def forward(self, x):
        return self._conv_forward(x, self.weight[:, :, 1:, 1:], None if self.bias is None else 2 * self.bias)


class Plain(nn.Conv2d):
    """A tensor that is neither a parameter nor a buffer."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.plain = self.weight.detach().clone()

    def forward(self, x):
        return self._conv_forward(x, self.plain, self.bias)


def pruned(*sizes, **options):
    return prune.l1_unstructured(nn.Conv2d(*sizes, **options), "weight", 0.5)


def with_weight_norm(*sizes, **options):
    return parametrizations.weight_norm(nn.Conv2d(*sizes, **options))


def with_spectral_norm(*sizes, **options):
    return parametrizations.spectral_norm(nn.Conv2d(*sizes, **options))


LAYERS = [pruned, with_weight_norm, with_spectral_norm, StandardisedConv, DropConnect, Cut, Plain]


def trained(layer, config=None):
    torch.manual_seed(0)
    net = nn.Sequential(layer(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), layer(8, 8, 3, groups=8), nn.ReLU(), layer(8, 4, 3))
    program = quaver.quant_aware(net, config, example_inputs=(torch.zeros(1, 3, 12, 12),))
    optimizer = torch.optim.SGD(program.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        program(torch.randn(4, 3, 12, 12)).square().mean().backward()
        optimizer.step()
    return net, program.eval()


@pytest.mark.parametrize("layer", LAYERS)
def test_they_are_integers_and_compute_what_was_trained(layer):
    net, program = trained(layer)
    images = torch.randn(2, 3, 12, 12)

    frozen, int8 = quaver.convert(program, save_int8=True)

    assert torch.equal(frozen(images), program(images))
    assert torch.equal(int8(images), program(images))
    assert sum(tensor.dtype == torch.int8 for tensor in int8.state_dict().values()) == 3
    assert [op.type for op in int8.ops() if op.quantized] == ["conv2d", "depthwise_conv2d", "conv2d"]
    assert not any("running_mean" in name or "weight_orig" in name for name in frozen.state_dict())
    expected = net.eval()(images)
    assert (program(images) - expected).norm() < 0.1 * expected.norm()  # nothing was left out


@pytest.mark.parametrize(
    "config",
    [
        {"weight_quantize_type": "channel_wise_learned_step"},
        {"weight_quantize_type": "moving_average_abs_max"},
        {"weight_bits": 4},
        {"quant_weight_only": True},
        {"weight_preprocess_type": "PACT"},
    ],
)
def test_every_range_rule_takes_them(config):
    _, program = trained(with_weight_norm, config)
    images = torch.randn(2, 3, 12, 12)

    assert torch.equal(quaver.convert(program)(images), program(images))


def test_what_was_pruned_is_zero_in_the_integers():
    net, program = trained(pruned)

    stored = quaver.convert(program, save_int8=True)[1].state_dict()["0.computed_weight"]

    assert torch.equal(stored == 0, (stored == 0) | (net[0].weight_mask == 0))
    assert (stored == 0).sum() >= net[0].weight.numel() // 2


def test_the_gradient_reaches_what_they_are_computed_from():
    net, program = trained(with_weight_norm)
    before = {name: tensor.clone() for name, tensor in net.named_parameters()}

    program.train()(torch.randn(4, 3, 12, 12)).square().mean().backward()

    assert all(parameter.grad.abs().sum() > 0 for name, parameter in net.named_parameters() if "original" in name)
    assert before.keys() == dict(net.named_parameters()).keys()


def test_dropped_weights_are_rounded_before_they_are_dropped():
    """Behind the dropout they are twice as large, in training only."""
    net, program = trained(DropConnect, {"weight_quantize_type": "moving_average_abs_max", "saturation_safe": False})

    (threshold,) = program.ops()[0].thresholds["weight"]

    assert threshold < 1.5 * net[0].weight.abs().max()


def test_one_that_two_layers_read_is_stored_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 3, 3, 3))

        def forward(self, x):
            weight = self.weight.tanh()
            return F.conv2d(F.conv2d(x, weight).relu(), weight)

    program = quaver.quant_aware(Twice(), example_inputs=(torch.zeros(1, 3, 8, 8),))
    program(torch.randn(4, 3, 8, 8))

    frozen = quaver.convert(program.eval())

    assert [name for name in frozen.state_dict() if "computed_weight" in name] == ["conv2d.computed_weight"]


def test_a_saved_program_has_them(tmp_path):
    _, program = trained(StandardisedConv)
    images = torch.randn(2, 3, 12, 12)

    loaded = quaver.load(quaver.save(program, tmp_path))

    assert torch.equal(quaver.convert(loaded)(images), program(images))


def test_analysis_and_calibration_see_them():
    batches = [torch.randn(4, 3, 12, 12) for _ in range(2)]
    net = nn.Sequential(StandardisedConv(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), with_weight_norm(8, 4, 3)).eval()

    program = quaver.calibrate(net, batches)

    assert torch.equal(quaver.convert(program)(batches[0]), program(batches[0]))
    names = {weight.name for weight in quaver.analyze(program, batches).weights}
    assert names == {"0.conv2d.computed_weight", "3.computed_weight"}
