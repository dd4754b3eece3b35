"""What every data set is: images by number, varied by epoch, alone or as a batch."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from quaver.data.augment import CROP_DRAWS, SHIFT_DRAWS, random_crop, shifted
from quaver.data.counter_rng import uniform
from quaver.data.images import MEAN, STD, cut_out, normalized, read_pixels, short_side
from quaver.preprocessing import Preprocessing

SMALL = 64  # pixels: up to this, images are shifted in training; larger ones are cropped
SHIFT = 8  # of an image's width: how far it is shifted at most


class ImageData(Dataset[Any], ABC):
    """Images, normalized, with what is to be learnt about each.

    ``classes`` is how many there are, ``image_shape`` channels, height and width. With ``augment`` an image differs from
    epoch to epoch (`set_epoch`), always in the same way for the same ``seed``, epoch and number.
    """

    preprocessing: Preprocessing | None = None
    """How an image becomes what `batch` gives, without ``augment``, and what the classes are called."""

    def __init__(self, *, classes: int, image_shape: tuple[int, int, int], augment: bool, seed: int) -> None:
        self.classes, self.image_shape = classes, image_shape
        self.augment, self.seed, self.epoch = augment, seed, 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Any]:
        """Images and targets of several numbers."""

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} is not among {len(self)} images.")
        images, targets = self.batch([index])
        target = targets[0]
        return images[0], int(target) if isinstance(target, Tensor) else target

    def set_epoch(self, epoch: int) -> None:
        """Vary the images as they are varied in this epoch."""
        self.epoch = epoch

    def draws(self, indices: Sequence[int], count: int) -> NDArray[np.float64]:
        """Random numbers in [0, 1) of each image in this epoch."""
        return uniform(self.seed, self.epoch, indices, count)


class MemoryImages(ImageData):
    """Images that are all in memory; a value x becomes ``(x − mean) / std``, channel by channel.

    In training they are shifted and, with ``flip``, mirrored; what is shifted in has the value ``fill``.
    """

    def __init__(
        self,
        images_nchw: NDArray[np.generic],
        labels: NDArray[np.int64],
        *,
        classes: int,
        mean: Sequence[float],
        std: Sequence[float],
        flip: bool,
        fill: float = 0,
        image_size: int | None = None,
        augment: bool = False,
        seed: int = 0,
    ) -> None:
        _, channels, height, width = images_nchw.shape
        shape = (channels, height, width) if image_size is None else (channels, image_size, image_size)
        super().__init__(classes=classes, image_shape=shape, augment=augment, seed=seed)
        self.images_nchw, self.labels = images_nchw, labels
        self.flip, self.fill = flip, fill
        self.mean, self.std = (np.asarray(values, np.float32)[:, None, None] for values in (mean, std))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and labels."""
        chosen = np.asarray(indices, np.int64)
        images = self.images_nchw[chosen]
        if self.augment:
            draws, pad = self.draws(indices, SHIFT_DRAWS), images.shape[3] // SHIFT
            images = shifted(images, draws, pad=pad, flip=self.flip, fill=self.fill)
        normal = images.astype(np.float32)
        normal -= self.mean
        normal /= self.std
        values = torch.from_numpy(normal)
        if values.shape[1:] != self.image_shape:
            values = F.interpolate(values, self.image_shape[1:], mode="bilinear", align_corners=False)
        return values, torch.from_numpy(self.labels[chosen])


class FileImages(ImageData):
    """Images in files, read when they are asked for; one that is broken is an error that names it.

    Without ``augment`` the centre of the image, as `read_image` cuts it out. With it, a random part, mirrored half the time;
    small images are only shifted. ``classes`` are their names, or how many there are.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        labels: Sequence[int],
        *,
        classes: int | Sequence[str],
        image_size: int,
        augment: bool,
        seed: int,
    ) -> None:
        names = () if isinstance(classes, int) else tuple(classes)
        count = classes if isinstance(classes, int) else len(classes)
        super().__init__(classes=count, image_shape=(3, image_size, image_size), augment=augment, seed=seed)
        self.preprocessing = Preprocessing(
            self.image_shape[1:], MEAN, STD, resize=short_side(image_size), filter="lanczos", labels=names
        )
        # an array of bytes: counting references makes every worker copy a list of a million strings
        self._paths = np.array([os.fsencode(path) for path in paths])
        self.labels = np.asarray(labels, np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> Path:
        """Where an image is."""
        return Path(os.fsdecode(bytes(self._paths[index])))

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and labels."""
        images = np.stack([self._read(index) for index in indices])
        return torch.from_numpy(images), torch.from_numpy(self.labels[np.asarray(indices, np.int64)])

    def _read(self, index: int) -> NDArray[np.float32]:
        size = self.image_shape[1]
        if not self.augment:
            return normalized(read_pixels(self.path(index), lambda image: cut_out(image, size)))
        if size > SMALL:
            (draws,) = self.draws([index], CROP_DRAWS)
            return normalized(read_pixels(self.path(index), lambda image: random_crop(image, draws, size)))
        pixels_hwc = read_pixels(self.path(index), lambda image: cut_out(image, size))
        moved = shifted(pixels_hwc.transpose(2, 0, 1)[None], self.draws([index], SHIFT_DRAWS), pad=size // SHIFT, flip=True)
        return normalized(moved[0].transpose(1, 2, 0))
