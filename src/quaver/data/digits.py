"""1797 handwritten digits that ship with the package.

From "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998,
CC BY 4.0): 8 x 8 images with values 0 … 16, kept here as they are.
"""

from importlib.resources import files
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset

from quaver.data.dataset import MemoryImages
from quaver.preprocessing import Preprocessing


def load_digits(size: int = 32, channels: int = 3, test_share: float = 0.2) -> tuple[TensorDataset, TensorDataset]:
    """Training and test set of (image, label); images are upscaled, with values from −1 to 1.

    The split is fixed: the last ``test_share`` of the images, which were written by other people than the first.

    >>> train, test = load_digits()
    >>> len(train), len(test), train[0][0].shape
    (1438, 359, torch.Size([3, 32, 32]))
    """
    with files("quaver.data").joinpath("digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        images = torch.from_numpy(stored["images"]).float()
        labels = torch.from_numpy(stored["labels"]).long()
    large = F.interpolate(images[:, None] / 8 - 1, size=(size, size), mode="bilinear", align_corners=False)
    large = large.expand(-1, channels, -1, -1).contiguous()
    first = len(labels) - int(len(labels) * test_share)
    return TensorDataset(large[:first], labels[:first]), TensorDataset(large[first:], labels[first:])


def digits(split: str, *, image_size: int, augment: bool, seed: int) -> MemoryImages:
    """One of the two as a data set; in training, digits are shifted, and never mirrored."""
    training, test = load_digits(image_size)
    images, labels = (training if split == "train" else test).tensors
    background = -1
    scale = {"mean": (0.0,) * 3, "std": (1.0,) * 3}  # they have values from −1 to 1 as they are
    options: dict[str, Any] = {"augment": augment, "seed": seed, "fill": background, **scale}
    data = MemoryImages(images.numpy(), labels.numpy(), classes=10, flip=False, **options)
    data.preprocessing = Preprocessing(data.image_shape[1:], (0.5,) * 3, (0.5,) * 3, labels=[*"0123456789"])
    return data
