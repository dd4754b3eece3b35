import pytest
import torch

from quaver.errors import ConfigError
from quaver.models import MobileNetV1, YOLOv3, build, load_weights


def test_the_maps_have_a_cell_for_8_16_and_32_pixels():
    with torch.device("meta"):
        maps = build("yolov3_mobilenet_v1", num_classes=5)(torch.zeros(2, 3, 416, 416))

    assert [tuple(values.shape) for values in maps] == [(2, 30, 52, 52), (2, 30, 26, 26), (2, 30, 13, 13)]


def test_the_backbone_is_all_of_mobilenet_v1_but_its_classifier():
    with torch.device("meta"):
        detector, classifier = YOLOv3(20), MobileNetV1()

    shapes = {name: value.shape for name, value in classifier.state_dict().items() if "classifier" not in name}
    assert {name: value.shape for name, value in detector.backbone.state_dict().items()} == shapes


def test_a_detector_can_begin_with_a_trained_classifier():
    torch.manual_seed(0)
    detector, classifier = YOLOv3(3, 0.25), MobileNetV1(10, 0.25)

    detector.start_from(classifier)

    assert torch.equal(detector.backbone.blocks[3][0][0].weight, classifier.blocks[3][0][0].weight)


def test_an_object_is_unlikely_everywhere_before_training():
    maps = YOLOv3(3, 0.25).eval()(torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)))

    for values in maps:
        assert (values.unflatten(1, (3, 8))[:, :, 4].sigmoid() < 0.1).all()


def test_a_size_that_the_maps_do_not_divide_is_refused():
    with pytest.raises(ConfigError, match=r"image_size 100: .* multiple of 32"):
        build("yolov3_mobilenet_v1", image_size=100)


def test_a_detector_of_other_classes_gives_all_but_its_three_heads(tmp_path):
    torch.save(YOLOv3(3, 0.25).state_dict(), tmp_path / "three.pth")

    left = load_weights(YOLOv3(5, 0.25), tmp_path / "three.pth", new_head=True)

    assert left == [f"levels.{level}.head.{kind}" for level in range(3) for kind in ("weight", "bias")]
