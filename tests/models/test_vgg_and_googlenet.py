import pytest
import torch
from torch import nn

import quaver
from quaver.models import googlenet, vgg16, vgg16_bn, vgg19
from quaver.models.googlenet import Inception


def count(model, kind):
    return sum(isinstance(module, kind) for module in model.modules())


@pytest.mark.parametrize(
    ("build", "convolutions", "linears"), [(vgg16, 13, 3), (vgg16_bn, 13, 3), (vgg19, 16, 3), (googlenet, 57, 1)]
)
def test_a_net_has_the_layers_it_is_named_for_and_takes_images_of_224(build, convolutions, linears):
    with torch.device("meta"):
        model = build(num_classes=9)
        logits = model(torch.zeros(2, 3, 224, 224))

    assert (count(model, nn.Conv2d), count(model, nn.Linear)) == (convolutions, linears)
    assert logits.shape == (2, 9)


def test_a_vgg_for_small_images_reads_a_last_map_of_one_pixel():
    with torch.device("meta"):
        model = vgg16(7, small_images=True)

        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert model.classifier[-1].in_features == 512


def test_the_signal_keeps_its_size_through_a_fresh_vgg():
    torch.manual_seed(0)
    stages = vgg16(small_images=True).eval().stages

    with torch.no_grad():
        last = stages(torch.randn(2, 3, 32, 32))

    assert 0.1 < last.std() < 10


def test_the_maps_of_googlenet_shrink_to_7_pixels_and_1024_channels():
    with torch.device("meta"):
        model = googlenet()
        stem = model.stem(torch.zeros(1, 3, 224, 224))
        shapes = [tuple(stem.shape[1:])]
        for stage in model.stages:
            stem = stage(stem)
            shapes.append(tuple(stem.shape[1:]))

    assert shapes == [(192, 28, 28), (480, 28, 28), (832, 14, 14), (1024, 7, 7)]


def test_an_inception_block_puts_its_branches_side_by_side():
    block = Inception(12, (4, (5, 6), (7, 8), 3)).eval()
    x = torch.randn(2, 12, 5, 5, generator=torch.Generator().manual_seed(0))

    y = block(x)

    assert y.shape == (2, block.channels, 5, 5)
    torch.testing.assert_close(y[:, :4], block.point(x))
    torch.testing.assert_close(y[:, 18:], block.pooled(x))


def test_every_convolution_and_concatenation_of_an_inception_block_is_quantized():
    qat = quaver.quant_aware(Inception(12, (4, (5, 6), (7, 8), 3)), example_inputs=(torch.randn(2, 12, 5, 5),))

    kinds = {op.name: op.type for op in qat.ops() if op.quantized}
    assert sum(kind == "conv2d" for kind in kinds.values()) == 6
    assert "pool2d" in kinds.values()
