"""Every architecture of the zoo, small, goes from float to int8 and stays bit-equal."""

import pytest
import torch
import torch.nn.functional as F

import quaver
from quaver.models import VGG, GoogLeNet, MobileNetV3, ResNet, SqueezeNet
from quaver.models.mobilenet_v3 import LARGE, SMALL
from quaver.models.resnet import BasicBlock
from quaver.program.reason import ONLY_IN_TRAINING, READ_IN_FLOAT, ComputedWith, Folded

pytestmark = pytest.mark.slow

NETS = {
    "cifar_resnet": lambda: ResNet(BasicBlock, (1, 1, 1), 10, small_images=True, width=16),
    "googlenet": lambda: GoogLeNet(10, small_images=True, stages=(((8, (8, 16), (8, 8), 8),), ((8, (8, 16), (8, 8), 8),))),
    "mobilenet_v3_large": lambda: MobileNetV3(LARGE[::4], 64, 10, 0.5, small_images=True),
    "mobilenet_v3_small": lambda: MobileNetV3(SMALL[::3], 64, 10, 0.5, small_images=True),
    "squeezenet": lambda: SqueezeNet(10, small_images=True),
    "vgg": lambda: VGG((1, 1, 1, 1, 1), 10, small_images=True, width=8),
    "vgg_bn": lambda: VGG((1, 1, 2, 1, 1), 10, batch_norm=True, small_images=True, width=8),
}


def trained(model, size):
    generator = torch.Generator().manual_seed(4)
    qat = quaver.quant_aware(model, example_inputs=(torch.zeros(1, 3, size, size),))
    optimizer = torch.optim.SGD(qat.parameters(), lr=0.01)
    for _ in range(2):
        images = torch.randn(4, 3, size, size, generator=generator)
        loss = F.cross_entropy(qat(images), torch.randint(0, 10, (4,), generator=generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return qat.eval()


@pytest.fixture(scope="module", params=NETS)
def qat(request):
    torch.manual_seed(0)
    return trained(NETS[request.param](), 32)


def test_frozen_and_int8_are_bit_equal_to_the_trained_program(qat):
    images = torch.randn(3, *qat.signature.tensors[0].shape[1:], generator=torch.Generator().manual_seed(5))

    frozen, int8 = quaver.convert(qat, save_int8=True)

    assert torch.equal(frozen(images), qat(images))
    assert torch.equal(int8(images), frozen(images))
    assert qat(images).std() > 0


def test_every_op_is_quantized_or_computed_with_one_that_is_or_gives_the_logits(qat):
    reasons = {op.name: op.why for op in qat.ops() if not op.quantized and op.type != "hard_sigmoid"}  # float in OpenVINO

    others = {name: why for name, why in reasons.items() if not isinstance(why, Folded | ComputedWith)}
    assert set(others.values()) <= {ONLY_IN_TRAINING, READ_IN_FLOAT}
