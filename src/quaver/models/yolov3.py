"""YOLOv3 (Redmon and Farhadi, 2018) on a MobileNetV1: three maps of boxes, for small, middle and large objects.

The network ends with its maps, in float; making boxes of them is not part of it, and stays float too (``quaver.detection``).
Activations are ReLU where the paper has leaky ones: what is never negative has all 255 steps of 8 bits for itself.
"""

import math

import torch
from torch import Tensor, nn

from quaver.errors import ConfigError
from quaver.models.blocks import conv_bn, scaled
from quaver.models.mobilenet_v1 import MobileNetV1

STRIDES = (8, 16, 32)  # pixels per cell of each map
BOXES = 3  # per cell
LAST_BLOCKS = (5, 11, 13)  # of MobileNetV1's blocks: those in front have the strides above
WIDTHS = (128, 256, 512)  # of each map's own layers
FEW = 0.01  # how likely an object is in a box before anything is known, so that training does not start by unlearning all


class Backbone(nn.Module):
    """MobileNetV1 without its classifier: what it knows at strides 8, 16 and 32."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        whole = MobileNetV1(1, scale)
        self.stem, self.blocks = whole.stem, whole.blocks
        self.channels = [scaled(width, scale) for width in (256, 512, 1024)]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Three maps, the finest first."""
        x, maps = self.stem(x), []
        for number, block in enumerate(self.blocks, 1):
            x = block(x)
            if number in LAST_BLOCKS:
                maps.append(x)
        return maps


class Level(nn.Module):
    """What turns a map of the backbone, and the coarser level's, into boxes."""

    def __init__(self, channels_in: int, width: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(channels_in, width, 1),
            conv_bn(width, 2 * width, 3),
            conv_bn(2 * width, width, 1),
            conv_bn(width, 2 * width, 3),
            conv_bn(2 * width, width, 1),
        )
        self.tip = conv_bn(width, 2 * width, 3)
        self.head = nn.Conv2d(2 * width, outputs, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What goes on to the finer level, and the map of boxes."""
        x = self.body(x)
        return x, self.head(self.tip(x))


class YOLOv3(nn.Module):
    """The detector. A map is N x (3 boxes · (x, y, width, height, object, classes …)) x rows x columns, not yet decoded."""

    def __init__(self, num_classes: int = 20, scale: float = 1.0) -> None:
        super().__init__()
        self.backbone = Backbone(scale)
        widths = [scaled(width, scale) for width in WIDTHS]
        coarser = [*(width // 2 for width in widths[1:]), 0]  # channels that come from the level above
        outputs = BOXES * (5 + num_classes)
        self.levels = nn.ModuleList(
            Level(channels + more, width, outputs)
            for channels, more, width in zip(self.backbone.channels, coarser, widths, strict=True)
        )
        self.up = nn.ModuleList(
            nn.Sequential(conv_bn(width, width // 2, 1), nn.Upsample(scale_factor=2)) for width in widths[1:]
        )
        for head in self.head_layers():
            assert head.bias is not None
            nn.init.zeros_(head.bias)
            head.bias.detach().view(BOXES, 5 + num_classes)[:, 4] = -math.log(1 / FEW - 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Three maps, the finest first."""
        fine, middle, coarse = self.backbone(x)
        carried, last = self.levels[2](coarse)
        carried, second = self.levels[1](torch.cat([self.up[1](carried), middle], 1))
        _, first = self.levels[0](torch.cat([self.up[0](carried), fine], 1))
        return first, second, last

    def head_layers(self) -> list[nn.Conv2d]:
        """The layers whose shape follows the number of classes."""
        return [level.head for level in self.levels]  # type: ignore[misc]

    def start_from(self, classifier: MobileNetV1) -> None:
        """Begin with the layers of a trained classifier of the same scale."""
        state = classifier.state_dict()
        self.backbone.load_state_dict({name: state[name] for name in self.backbone.state_dict()})


def yolov3_mobilenet_v1(num_classes: int = 20, scale: float = 1.0, *, image_size: int = 416) -> YOLOv3:
    """YOLOv3 on MobileNetV1, for images whose size is a multiple of 32."""
    if image_size % STRIDES[-1]:
        raise ConfigError(f"image_size {image_size}: YOLOv3 takes images whose size is a multiple of {STRIDES[-1]} pixels.")
    return YOLOv3(num_classes, scale)
