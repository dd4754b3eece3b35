"""A live model for an engine that rounds every output: batches show the ranges that its layers do not know."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from needs import need_executorch
from quaver.errors import InputError, StageError
from quaver.passes import TransformForMobilePass

pytestmark = pytest.mark.slow

SPEC = quaver.InputSpec([None, 3, 8, 8])


class Residual(nn.Module):
    """A sum, whose one operand stays as it is, and a last layer behind which nothing comes."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm, self.add, self.head = nn.BatchNorm2d(8), quaver.nn.Add(), nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(self.add(self.norm(self.body(x)), x))
        return self.head(x.mean((2, 3)))


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 3, 8, 8, generator=generator) for _ in range(4)]


@pytest.fixture
def live(batches):
    torch.manual_seed(0)
    quanter = quaver.QAT()
    net = quanter.quantize(Residual()).train()
    for images in batches:
        net(images)
    return quanter, net.eval()


def test_without_batches_what_an_engine_needs_is_said(live):
    quanter, net = live

    with pytest.raises(StageError, match=r"'body': the range of its output was not observed, .* give QAT.convert\(net, inp"):
        TransformForMobilePass().apply(quanter.convert(net, SPEC))


def test_the_ranges_are_those_of_what_the_layers_give(live, batches):
    quanter, net = live
    seen = {"norm": [], "head": []}
    for name, values in seen.items():
        net.get_submodule(name).register_forward_hook(lambda *call, values=values: values.append(call[2].abs().max().item()))
    with torch.no_grad():
        net(batches[0])

    frozen = quanter.convert(net, SPEC, batches[:1])

    found = {op.name: op.thresholds.get("output") for op in frozen.ops()}
    assert found["body"] == [pytest.approx(seen["norm"][0], rel=1e-5)]
    assert found["head"] == [pytest.approx(seen["head"][0], rel=1e-5)]


def test_the_mobile_form_computes_nearly_what_the_model_computes(live, batches):
    quanter, net = live

    frozen = quanter.convert(net, SPEC, [(images, torch.zeros(8)) for images in batches])
    mobile = TransformForMobilePass().apply(frozen)

    expected = net(batches[0])
    assert torch.equal(frozen(batches[0]), expected)
    step = expected.abs().max() / 127
    assert (mobile(batches[0]) - expected).abs().max() < 4 * step  # of its own rounding, and that of the sum


def test_arrays_will_do_for_batches(live, batches):
    quanter, net = live

    first, second = (quanter.convert(net, SPEC, given) for given in (batches, [images.numpy() for images in batches]))

    assert first.ops() == second.ops()


def test_a_batch_with_too_few_tensors_is_refused(live):
    quanter, net = live

    with pytest.raises(InputError, match="a batch has 0 tensors, and the model takes 1"):
        quanter.convert(net, SPEC, [[]])


def test_the_engine_computes_the_mobile_form(live, batches, tmp_path):
    need_executorch()
    quanter, net = live
    frozen = quanter.convert(net, SPEC, batches)

    result = quaver.verify(frozen, quaver.export(frozen, tmp_path, target="executorch"), batches)

    assert (result.agreement, result.largest_difference) == (1.0, 0.0)
