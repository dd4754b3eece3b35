"""The zoo: one architecture per file, built by functions named after them."""

from quaver.models.mobilenet_v1 import MobileNetV1, mobilenet_v1
from quaver.models.mobilenet_v2 import MobileNetV2, mobilenet_v2
from quaver.models.resnet import ResNet, resnet18, resnet34, resnet50, resnet101

__all__ = [
    "MobileNetV1",
    "MobileNetV2",
    "ResNet",
    "mobilenet_v1",
    "mobilenet_v2",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
]
