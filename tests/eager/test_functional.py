"""`quaver.nn`: sums and pools that a live model can be asked to quantize."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver

SPEC = quaver.InputSpec([None, 3, 16, 16])


class Block(nn.Module):
    """A residual block with its sum and pools as modules."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.pool = quaver.nn.MaxPool2d(2)
        self.body, self.body_bn = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.add, self.average = quaver.nn.Add(), quaver.nn.AdaptiveAvgPool2d(1)
        self.quarter = quaver.nn.AvgPool2d(2)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.stem_bn(self.stem(x))))
        x = F.relu(self.add(self.body_bn(self.body(x)), x))
        return self.head(self.average(self.quarter(x)).flatten(1))


@pytest.fixture
def net(train):
    torch.manual_seed(0)
    return train(quaver.QAT().quantize(Block()))


def test_unquantized_they_are_what_they_are_named_after():
    x, y = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)

    assert torch.equal(quaver.nn.Add()(x, y), x + y)
    assert torch.equal(quaver.nn.AvgPool2d(2)(x), F.avg_pool2d(x, 2))
    assert torch.equal(quaver.nn.AdaptiveAvgPool2d(1)(x), F.adaptive_avg_pool2d(x, 1))
    assert torch.equal(quaver.nn.MaxPool2d(2)(x), F.max_pool2d(x, 2))


def test_the_operand_that_comes_out_of_a_convolution_stays_as_it_is(net):
    assert net.add._quaver_raw == 0
    assert net.add.input_quantizers[0].threshold == 0
    assert net.add.input_quantizers[1].threshold > 0
    assert not net.add.input_quantizers[1].grid.signed
    assert not net.body.input_quantizer.grid.signed


@pytest.mark.slow
def test_the_engine_computes_them_in_int8(net, images, tmp_path):
    quanter = quaver.QAT()
    frozen = quanter.convert(net, SPEC)

    artefact = quaver.export(frozen, tmp_path)
    result = quaver.verify(frozen, artefact, [images, 2 * images])

    quantized = {op.name for op in frozen.ops() if op.quantized}
    assert {"add.elementwise_add", "pool.pool2d", "quarter.pool2d", "average.pool2d"} <= quantized
    assert (result.agreement, result.integers_equal) == (1.0, 1.0)
    with torch.no_grad():
        live = net(images).numpy()
    # behind the sum, the live model counts in real numbers where the engine counts in steps of the shortcut
    assert np.abs(quaver.runtime.load(artefact)(images.numpy()) - live).max() <= 1e-3 * np.abs(live).max()


def test_two_tensors_that_are_no_convolutions_are_both_rounded(images):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.add, self.head = quaver.nn.Add(), nn.Linear(768, 4)

        def forward(self, x):
            return self.head(self.add(x, x.flip(2)).flatten(1))

    quanter = quaver.QAT()
    net = quanter.quantize(Sum())
    net(images)

    assert net.add._quaver_raw is None
    assert all(quantizer.threshold == images.abs().max() for quantizer in net.add.input_quantizers)
    assert torch.equal(quanter.convert(net.eval(), SPEC)(images), net(images))


class Reader(nn.Module):
    """Two convolutions, the second of which reads the first, and their sum."""

    def __init__(self, turned):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.add, self.head, self.turned = quaver.nn.Add(), nn.Conv2d(3, 4, 1), turned

    def forward(self, x):
        x = self.one(x)
        y = self.two(x)
        return self.head(F.relu(self.add(y, x) if self.turned else self.add(x, y)))


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_convolution_that_somebody_else_reads_is_rounded(turned, training, images):
    net = quaver.QAT().quantize(Reader(turned)).train(training)

    net(images)

    assert net.add._quaver_raw == (0 if turned else 1)


def test_what_was_changed_in_place_is_no_convolutions_output(images):
    net = Reader(False)
    net.two.register_forward_hook(lambda module, args, output: F.relu_(output))
    quaver.QAT().quantize(net)

    net(images)

    assert net.add._quaver_raw is None


def test_a_number_is_added_as_it_is(images):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.add, self.head = nn.Conv2d(3, 4, 3), quaver.nn.Add(), nn.Conv2d(4, 4, 1)

        def forward(self, x):
            return self.head(self.add(self.conv(x), 1.0))

    quanter = quaver.QAT()
    net = quanter.quantize(Shifted())
    net(images)

    assert torch.equal(quanter.convert(net.eval(), SPEC)(images), net(images))


def test_pools_of_pytorch_are_quantized_where_they_are_named(images):
    net = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(192, 4))
    quanter = quaver.QAT({"quantizable_layer_type": ["AvgPool2d", "Linear"]})

    quanter.quantize(net)(images)

    assert net[0].input_quantizer.threshold > 0
    assert torch.equal(quanter.convert(net.eval(), SPEC)(images), net(images))


def test_weights_only_leaves_them_float():
    net = quaver.QAT({"quant_weight_only": True}).quantize(Block())

    assert type(net.add) is quaver.nn.Add


def test_what_a_model_writes_into_a_convolutions_output_reaches_the_batch_norm(images):
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

        def forward(self, x):
            x = self.conv(x)
            if self.doubled:
                x.mul_(2)
            return self.norm(x)

    torch.manual_seed(0)
    net = InPlace()
    net.doubled = True
    quaver.QAT().quantize(net).train()(images)
    net.eval()
    with torch.no_grad():
        doubled = net(images)
        net.doubled = False
        plain = net(images)

    shift = net.norm.bias - net.norm.running_mean * net.norm.weight * (net.norm.running_var + net.norm.eps).rsqrt()
    torch.testing.assert_close(doubled, 2 * plain - shift.detach().view(1, -1, 1, 1), rtol=1e-4, atol=1e-5)
