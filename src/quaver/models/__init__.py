"""The zoo: one architecture per file, built by functions named after them, or by name with `build`."""

from quaver.models.by_name import build, names
from quaver.models.googlenet import GoogLeNet, googlenet
from quaver.models.mobilenet_v1 import MobileNetV1, mobilenet_v1
from quaver.models.mobilenet_v2 import MobileNetV2, mobilenet_v2
from quaver.models.mobilenet_v3 import MobileNetV3, mobilenet_v3_large, mobilenet_v3_small
from quaver.models.resnet import ResNet, resnet18, resnet20, resnet34, resnet50, resnet56, resnet101
from quaver.models.squeezenet import SqueezeNet, squeezenet
from quaver.models.vgg import VGG, vgg16, vgg16_bn, vgg19, vgg19_bn
from quaver.models.weight_files import load_weights
from quaver.models.yolov3 import YOLOv3, yolov3_mobilenet_v1

__all__ = [
    "VGG",
    "GoogLeNet",
    "MobileNetV1",
    "MobileNetV2",
    "MobileNetV3",
    "ResNet",
    "SqueezeNet",
    "YOLOv3",
    "build",
    "googlenet",
    "load_weights",
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "names",
    "resnet18",
    "resnet20",
    "resnet34",
    "resnet50",
    "resnet56",
    "resnet101",
    "squeezenet",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
    "yolov3_mobilenet_v1",
]
