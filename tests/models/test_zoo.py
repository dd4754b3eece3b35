import pytest
import torch

from quaver import models

PUBLISHED = {  # parameters as the papers and torchvision count them, at 1000 classes
    "googlenet": 6_624_904,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_has_the_published_number_of_parameters(name):
    with torch.device("meta"):
        model = getattr(models, name)()

    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("name", ["googlenet", "mobilenet_v1", "mobilenet_v2", "resnet18"])
def test_a_model_gives_logits(name, small):
    model = getattr(models, name)(num_classes=7, small_images=small).eval()

    logits = model(torch.zeros(2, 3, 32, 32))

    assert logits.shape == (2, 7)
