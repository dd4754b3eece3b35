"""A data set in two parts: images to learn from, and a few that are held out, to choose by."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from quaver.data.counter_rng import permutation
from quaver.data.dataset import ImageData
from quaver.errors import ConfigError

ONE_IN = 10
MOST = 5000
"""Images that are held out: one in ten, and no more than these: one of them is 0.02 points."""
NO_EPOCH = -1
"""In place of an epoch's number: what is held out is the same in all of them."""


class Subset(ImageData):
    """Some images of a data set, by their numbers in it."""

    def __init__(self, whole: ImageData, numbers: Sequence[int]) -> None:
        super().__init__(classes=whole.classes, image_shape=whole.image_shape, augment=whole.augment, seed=whole.seed)
        self.whole, self.numbers = whole, list(numbers)
        self.preprocessing = whole.preprocessing

    def __len__(self) -> int:
        return len(self.numbers)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Any]:
        """Images and targets, varied as they are in the whole."""
        return self.whole.batch([self.numbers[index] for index in indices])

    def set_epoch(self, epoch: int) -> None:
        """Vary the images as they are varied in this epoch."""
        self.whole.set_epoch(epoch)


def held_out(train: ImageData, seed: int) -> tuple[Subset, Subset]:
    """The images to learn from, and those held out, as they are: not varied. The same for the same seed."""
    count = min(len(train) // ONE_IN, MOST)
    if not count:
        raise ConfigError(
            f"target_drop: one training image in {ONE_IN} is held out to choose by, and there are only {len(train)}. Give "
            "more, or leave the target out."
        )
    order = permutation(seed, NO_EPOCH, len(train)).tolist()
    as_they_are = copy.copy(train)
    as_they_are.augment = False
    return Subset(train, sorted(order[count:])), Subset(as_they_are, sorted(order[:count]))
