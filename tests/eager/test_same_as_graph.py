"""The live model and the program of it: one arithmetic, so one loss curve and the same integers."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from quaver.models import ResNet
from quaver.models.mobilenet_v1 import separable
from quaver.models.resnet import BasicBlock
from quaver.quantizers import PACT

pytestmark = pytest.mark.slow

LAYERS = ["conv1d", "conv2d", "depthwise_conv2d", "conv2d_transpose", "mul"]
SPEC = quaver.InputSpec([None, 3, 16, 16])


class Odd(nn.Module):
    """Padding by reflection, groups, transposed, 1-d, batch norms of all kinds."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect", bias=False)
        self.stem_bn = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.left, self.right = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1, bias=False)
        self.right_bn = nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2, bias=False)
        self.up_bn = nn.BatchNorm2d(6)
        self.line = nn.Conv1d(6, 6, 3, stride=3)
        self.line_bn = nn.BatchNorm1d(6)
        self.fc, self.fc_bn = nn.Linear(6, 12), nn.BatchNorm1d(12)
        self.head = nn.Linear(12, 10)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                nn.init.uniform_(module.weight, -1, 1)

    def forward(self, x):
        x = F.relu(self.stem_bn(self.stem(x)))
        x = F.relu(self.grouped(x))
        x = torch.cat([self.left(x[:, :4]), F.relu(self.right_bn(self.right(x[:, 4:])))], 1)
        x = F.hardswish(self.up_bn(self.up(F.max_pool2d(x, 2))))
        x = self.line_bn(self.line(x.flatten(2))).mean(2)
        return self.head(F.relu(self.fc_bn(self.fc(x))))


NETS = {
    "separable": lambda: nn.Sequential(
        separable(3, 8, 1), separable(8, 16, 2), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16, 10)
    ),
    "resnet": lambda: ResNet(BasicBlock, (1, 1, 1), 10, small_images=True, width=16),
    "odd": Odd,
}
CONFIGS = {
    "default": {},
    "range": {"activation_quantize_type": "range_abs_max", "window_size": 3, "weight_quantize_type": "abs_max"},
    "learned": {
        "activation_quantize_type": "learned_step",
        "weight_quantize_type": "channel_wise_learned_step",
        "weight_bits": 4,
        "activation_bits": 4,
        "layer_bits": {"stem": 8},
    },
    "weights only": {"quant_weight_only": True},
    "unsafe": {"saturation_safe": False, "pass_through": True, "moving_rate": 0.5},
}


def both(make, config, **functions):
    torch.manual_seed(0)
    net = make()
    program = quaver.quant_aware(
        copy.deepcopy(net),
        config | {"quantize_op_types": LAYERS},
        example_inputs=(torch.zeros(2, 3, 16, 16),),
        **functions,
    )
    quanter = quaver.QAT(config, **functions)
    return net, program, quanter, quanter.quantize(net)


def trained(model, groups, steps):
    generator = torch.Generator().manual_seed(3)
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    losses = []
    model.train()
    for _ in range(steps):
        images = torch.randn(8, 3, 16, 16, generator=generator)
        loss = F.cross_entropy(model(images), torch.randint(0, 10, (8,), generator=generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


def assert_same_integers(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
    steps = [
        str([node.args[1:] for node in program.graphs["eval"].nodes if "quantize" in node.name]) for program in (one, other)
    ]
    assert steps[0] == steps[1]


@pytest.mark.parametrize("name", NETS)
def test_losses_are_equal_for_twenty_steps_and_the_same_integers_are_exported(name):
    net, program, quanter, _ = both(NETS[name], {})

    live = trained(net, net.parameters(), 20)
    graph = trained(program, program.parameters(), 20)

    torch.testing.assert_close(live, graph, rtol=1e-5, atol=1e-6)
    assert len(set(live)) == 20
    frozen, images = quanter.convert(net, SPEC), torch.randn(5, 3, 16, 16)
    assert_same_integers(frozen, quaver.convert(program))
    assert torch.equal(frozen(images), net(images))


@pytest.mark.parametrize("config", list(CONFIGS)[1:])
def test_so_it_is_with_every_config(config):
    net, program, quanter, _ = both(Odd, CONFIGS[config])

    live = trained(net, quanter.parameter_groups(net, lr=0.01), 5)
    graph = trained(program, program.parameter_groups(lr=0.01), 5)

    torch.testing.assert_close(live, graph, rtol=1e-5, atol=1e-6)
    assert_same_integers(quanter.convert(net, SPEC), quaver.convert(program))


def test_and_with_a_learned_clip():
    clips = {"act_preprocess_func": PACT(0.7), "weight_preprocess_func": PACT(0.1)}
    net, program, quanter, _ = both(Odd, {}, **clips)

    live = trained(net, quanter.parameter_groups(net, weight_decay=1e-4), 5)
    graph = trained(program, program.parameter_groups(weight_decay=1e-4), 5)

    torch.testing.assert_close(live, graph, rtol=1e-5, atol=1e-6)
    assert_same_integers(quanter.convert(net, SPEC), quaver.convert(program))


class Again(nn.Module):
    """A layer that is called twice, and a tensor that two layers read with quantizers that saw different things."""

    def __init__(self):
        super().__init__()
        self.stem, self.twice = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1)
        self.bn, self.head = nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        return self.head(self.bn(self.twice(F.relu(self.twice(x)))).mean((2, 3)))


def test_a_layer_called_twice_has_one_range_in_training_evaluation_and_export():
    torch.manual_seed(0)
    quanter = quaver.QAT()
    net = quanter.quantize(Again())
    trained(net, net.parameters(), 3)
    images = torch.randn(5, 3, 16, 16)

    frozen = quanter.convert(net, SPEC)

    assert torch.equal(frozen(images), net(images))
    threshold = [net.twice.input_quantizer.threshold.item()]
    assert [op.thresholds["input"] for op in frozen.ops() if op.scope == "twice"] == [threshold, threshold]


def test_one_tensor_with_two_ranges_is_rounded_for_each_reader_in_its_own_way():
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right, self.third = (nn.Conv2d(3, 10, 1) for _ in range(3))

        def forward(self, x):
            return (self.left(x) + self.right(x) + self.third(x)).mean((2, 3))

    quanter = quaver.QAT()
    net = quanter.quantize(Fork())
    trained(net, net.parameters(), 2)
    net.right.input_quantizer.accum.mul_(0.5)
    images = torch.randn(5, 3, 16, 16)

    frozen = quanter.convert(net, SPEC)

    assert torch.equal(frozen(images), net(images))
    assert sum("quantize_per_tensor" in node.name for node in frozen.graphs["eval"].nodes) == 2 * 2
