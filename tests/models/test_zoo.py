import pytest
import torch

from quaver import models
from quaver.models.blocks import fewer_halvings

PUBLISHED = {  # parameters as the papers and torchvision count them, at 1000 classes (the ResNets for CIFAR at 10)
    "googlenet": 6_624_904,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032,
    "mobilenet_v3_small": 2_542_856,
    "resnet18": 11_689_512,
    "resnet20": 272_474,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet56": 855_770,
    "resnet101": 44_549_160,
    "squeezenet": 1_235_496,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992 - 4_224,  # less the biases of convolutions, which batch norm takes out again
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248 - 5_504,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_has_the_published_number_of_parameters(name):
    with torch.device("meta"):
        model = getattr(models, name)()

    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]


def test_the_published_numbers_cover_the_zoo():
    assert [name for name in models.names() if "yolo" not in name] == list(PUBLISHED)


@pytest.mark.slow
@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_gives_logits_for_images_of_its_size(name, size):
    with torch.device("meta"):
        model = models.build(name, num_classes=7, image_size=size).eval()

        logits = model(torch.zeros(2, 3, size, size))

    assert logits.shape == (2, 7)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if not name.startswith("vgg")])
def test_the_last_map_of_a_small_image_has_some_pixels_left(name):
    with torch.device("meta"):
        model = models.build(name, image_size=32)
    sizes = []
    model.pool.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[-2:]))

    with torch.device("meta"):
        model.eval()(torch.zeros(1, 3, 32, 32))

    side = 8 if name in ("googlenet", "resnet20", "resnet56", "squeezenet") else 4
    assert sizes[0] == (side, side)


def test_fewer_strides_are_left_out_than_there_are():
    assert fewer_halvings([1, 2], count=3) == [1, 1]
