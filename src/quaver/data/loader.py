"""``data.Loader``: the batches of an epoch, in an order that depends on nothing but seed and epoch."""

import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from quaver.checking import check, whole
from quaver.data.counter_rng import permutation
from quaver.data.dataset import ImageData
from quaver.errors import ConfigError, DataError, QuaverError

Batch = tuple[Tensor, Any]


class Loader:
    """Batches of a data set, ``(images, labels)``, for one process or for each of several.

    ``batch_size`` counts the images of a step over all ``world`` processes. Rank r reads its slice of each such batch, so
    that a step sees the same images however many share it. In training (``shuffle``) slices are of equal size: where the
    last, short batch cannot be shared evenly, it loses the few images that are over. In evaluation every image is read by
    exactly one rank.

    ``workers`` processes read ahead; 0 reads in this one. An error in a worker is raised here, with its own message.
    """

    def __init__(
        self,
        dataset: ImageData,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        workers: int = 0,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        pin_memory: bool = False,
    ) -> None:
        options = {"batch_size": batch_size, "workers": workers, "world": world, "rank": rank}
        rules = {"batch_size": whole(1), "workers": whole(0), "world": whole(1), "rank": whole(0, max(world, 1) - 1)}
        check("Loader", options, rules)
        if shuffle and batch_size % world:
            raise ConfigError(
                f"batch_size {batch_size}: cannot be shared evenly by {world} processes. Take a multiple of {world}; it "
                "counts the images of a step over all of them."
            )
        self.dataset, self.batch_size, self.shuffle, self.seed = dataset, batch_size, shuffle, seed
        self.workers, self.rank, self.world, self.drop_last = workers, rank, world, drop_last
        self.pin_memory = pin_memory
        if shuffle and not len(self):
            raise ConfigError(f"batch_size {batch_size}: the data set has only {len(dataset)} images. Take a smaller one.")

    def __len__(self) -> int:
        """Batches per epoch, for this rank."""
        return len(self._slices())

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from number ``start`` on."""
        plan = self.plan(epoch)[start:]
        if self.workers == 0 or not plan:
            for indices in plan:
                yield self._pinned(_of_epoch(self.dataset, epoch, indices))
            return
        batches = self._started(epoch, plan)
        try:
            for batch in _told_plainly(batches):
                if isinstance(batch, QuaverError):
                    raise batch
                yield batch
        finally:
            del batches  # and with it the workers, also when only half of the epoch was wanted

    def plan(self, epoch: int) -> list[list[int]]:
        """Which images this rank reads in an epoch, batch by batch."""
        count = len(self.dataset)
        numbers = permutation(self.seed, epoch, count).tolist() if self.shuffle else range(count)
        return [list(numbers[part]) for part in self._slices()]

    def _slices(self) -> list[slice]:
        """The rank's part of every batch, as places in the epoch's order."""
        count, parts = len(self.dataset), []
        for first in range(0, count, self.batch_size):
            size = min(self.batch_size, count - first)
            if size < self.batch_size and self.drop_last:
                continue
            if self.shuffle:
                size -= size % self.world
            low, high = (first + size * rank // self.world for rank in (self.rank, self.rank + 1))
            if low < high:
                parts.append(slice(low, high))
        return parts

    def _started(self, epoch: int, plan: list[list[int]]) -> Iterator[Any]:
        loader = DataLoader(
            _Epoch(self.dataset, epoch),
            batch_size=None,
            sampler=plan,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            worker_init_fn=_begin_worker,
            generator=torch.Generator(),  # of its own, so that reading data does not move the model's random numbers
            pin_memory=self.pin_memory,
            # a forked worker needs no copy of the data; other systems cannot fork safely
            multiprocessing_context="fork" if sys.platform == "linux" else None,
        )
        with warnings.catch_warnings(), _interrupts_held_back():
            # Python 3.12 and later warn of forking a process with threads; these workers use none of them
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            return iter(loader)

    def _pinned(self, batch: Batch) -> Batch:
        if not self.pin_memory:
            return batch
        images, labels = batch
        return images.pin_memory(), labels.pin_memory() if isinstance(labels, Tensor) else labels


class _Epoch(Dataset[Any]):
    """A data set in an epoch, indexed by lists of numbers. Errors of ours are returned: torch would garble a raised one."""

    def __init__(self, dataset: ImageData, epoch: int) -> None:
        self.dataset, self.epoch = dataset, epoch

    def __getitem__(self, indices: Sequence[int]) -> Batch | QuaverError:
        try:
            return _of_epoch(self.dataset, self.epoch, indices)
        except QuaverError as error:
            return type(error)(str(error))


def _of_epoch(dataset: ImageData, epoch: int, indices: Sequence[int]) -> Batch:
    dataset.set_epoch(epoch)
    return dataset.batch(indices)


def _told_plainly(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches; if a worker died, an error that says so."""
    try:
        yield from batches
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DataError(
            f"a worker process that reads images died: {error}. It may have run out of memory, or of shared memory "
            "(/dev/shm). Use fewer workers or smaller batches; with 0 workers images are read in the main process."
        ) from error


def _as_it_is(batch: Any) -> Any:
    return batch


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start workers that never see Ctrl-C, which goes to every process of a terminal.

    The main process decides what becomes of the work, and ends the workers; it sees the signal when this block ends.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(worker: int) -> None:
    warnings.filterwarnings("ignore", module="PIL")  # its doubts about harmless tags
