"""VGG (Simonyan and Zisserman, 2014): 3x3 convolutions, with batch norm or as published without, and linear layers."""

from torch import Tensor, nn

from quaver.models.blocks import conv_bn

WIDTHS = (1, 2, 4, 8, 8)  # of the stages, in multiples of the first; every stage ends with a pool
VGG16, VGG19 = (2, 2, 3, 3, 3), (2, 2, 4, 4, 4)  # convolutions per stage: configurations D and E


class VGG(nn.Module):
    """A VGG of five stages with ``repeats`` convolutions each, the first ``width`` channels wide.

    Three linear layers read the whole last map, 7 x 7 for images of 224 pixels. With ``small_images`` of 32 the last map is
    one pixel, and one linear layer does: the wide ones only remember the training images.
    """

    def __init__(
        self,
        repeats: tuple[int, ...],
        num_classes: int = 1000,
        *,
        batch_norm: bool = False,
        small_images: bool = False,
        width: int = 64,
    ) -> None:
        super().__init__()
        channels, stages = 3, []
        for multiple, count in zip(WIDTHS, repeats, strict=True):
            layers: list[nn.Module] = []
            for _ in range(count):
                layers.append(convolution(channels, width * multiple, batch_norm))
                channels = width * multiple
            stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.stages = nn.Sequential(*stages)
        self.classifier = small_classifier(channels, num_classes) if small_images else classifier(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # without batch norm, torch's own start lets the signal fade with depth
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.classifier(self.stages(x).flatten(1))
        return logits


def convolution(channels_in: int, channels_out: int, batch_norm: bool) -> nn.Sequential:
    """A 3x3 convolution with ReLU."""
    if batch_norm:
        return conv_bn(channels_in, channels_out, 3)
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.ReLU())


def classifier(channels: int, num_classes: int) -> nn.Sequential:
    """The published one, for a last map of 7 x 7."""
    return nn.Sequential(
        *(nn.Linear(channels * 7 * 7, 4096), nn.ReLU(), nn.Dropout()),
        *(nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()),
        nn.Linear(4096, num_classes),
    )


def small_classifier(channels: int, num_classes: int) -> nn.Sequential:
    """One linear layer, for a last map of one pixel."""
    return nn.Sequential(nn.Dropout(), nn.Linear(channels, num_classes))


def vgg16(num_classes: int = 1000, *, small_images: bool = False) -> VGG:
    """VGG-16 (configuration D)."""
    return VGG(VGG16, num_classes, small_images=small_images)


def vgg19(num_classes: int = 1000, *, small_images: bool = False) -> VGG:
    """VGG-19 (configuration E)."""
    return VGG(VGG19, num_classes, small_images=small_images)


def vgg16_bn(num_classes: int = 1000, *, small_images: bool = False) -> VGG:
    """VGG-16 with batch norm."""
    return VGG(VGG16, num_classes, batch_norm=True, small_images=small_images)


def vgg19_bn(num_classes: int = 1000, *, small_images: bool = False) -> VGG:
    """VGG-19 with batch norm."""
    return VGG(VGG19, num_classes, batch_norm=True, small_images=small_images)
