"""VGG (Simonyan and Zisserman, 2014): 3x3 convolutions without batch norm, and three wide linear layers."""

from torch import Tensor, nn

# channels of each stage; every stage ends with a pool
WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """A VGG of five stages with ``repeats`` convolutions each.

    The first linear layer reads the whole last map: 7 x 7 for images of 224 pixels, 1 x 1 for ``small_images`` of 32.
    """

    def __init__(self, repeats: tuple[int, ...], num_classes: int = 1000, *, small_images: bool = False) -> None:
        super().__init__()
        channels, stages = 3, []
        for width, count in zip(WIDTHS, repeats, strict=True):
            layers: list[nn.Module] = []
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.stages = nn.Sequential(*stages)
        last = channels * (1 if small_images else 7 * 7)
        self.classifier = nn.Sequential(
            *(nn.Linear(last, 4096), nn.ReLU(), nn.Dropout()),
            *(nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()),
            nn.Linear(4096, num_classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # without batch norm, torch's own start lets the signal fade with depth
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.classifier(self.stages(x).flatten(1))
        return logits


def vgg16(num_classes: int = 1000, *, small_images: bool = False) -> VGG:
    """VGG-16 (configuration D)."""
    return VGG((2, 2, 3, 3, 3), num_classes, small_images=small_images)


def vgg19(num_classes: int = 1000, *, small_images: bool = False) -> VGG:
    """VGG-19 (configuration E)."""
    return VGG((2, 2, 4, 4, 4), num_classes, small_images=small_images)
