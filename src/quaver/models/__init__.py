"""The zoo: one architecture per file, built by functions named after them."""

from quaver.models.googlenet import GoogLeNet, googlenet
from quaver.models.mobilenet_v1 import MobileNetV1, mobilenet_v1
from quaver.models.mobilenet_v2 import MobileNetV2, mobilenet_v2
from quaver.models.resnet import ResNet, resnet18, resnet34, resnet50, resnet101
from quaver.models.vgg import VGG, vgg16, vgg19

__all__ = [
    "VGG",
    "GoogLeNet",
    "MobileNetV1",
    "MobileNetV2",
    "ResNet",
    "googlenet",
    "mobilenet_v1",
    "mobilenet_v2",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "vgg16",
    "vgg19",
]
