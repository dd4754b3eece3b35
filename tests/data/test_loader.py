import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from children import child
from limits import AN_HOUR
from quaver.data import Loader, MemoryImages, open_dataset
from quaver.errors import ConfigError, DataError


def numbered(count, augment=False):
    """Images whose label is their number, and so is their pixel."""
    images = np.arange(count, dtype=np.float32)[:, None, None, None] + np.zeros((1, 1, 8, 8), np.float32)
    return MemoryImages(images, np.arange(count), classes=count, mean=[0], std=[1], flip=True, augment=augment)


def labels(loader, epoch=0, start=0):
    return [batch_labels.tolist() for _, batch_labels in loader.epoch(epoch, start)]


def test_an_epoch_has_every_image_once_with_its_label():
    loader = Loader(numbered(10), 4, shuffle=True, seed=5)

    batches = list(loader.epoch(0))

    assert [len(images) for images, _ in batches] == [4, 4, 2]
    assert sorted(number for batch in labels(loader) for number in batch) == list(range(10))
    assert all(torch.equal(images[:, 0, 0, 0], numbers.float()) for images, numbers in batches)
    assert len(loader) == 3


def test_the_order_depends_on_seed_and_epoch_alone():
    loader, other = Loader(numbered(50), 5, shuffle=True, seed=5), Loader(numbered(50), 5, shuffle=True, seed=6)

    assert labels(loader, 3) == labels(loader, 3)
    assert labels(loader, 3) != labels(loader, 4)
    assert labels(loader, 3) != labels(other, 3)


def test_an_epoch_goes_on_from_any_batch_with_the_same_pixels():
    loader = Loader(numbered(20, augment=True), 4, shuffle=True)

    whole, rest = list(loader.epoch(2)), list(loader.epoch(2, start=3))

    assert len(rest) == 2
    for (images, numbers), (again, again_numbers) in zip(whole[3:], rest, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(numbers, again_numbers)


def test_images_are_varied_as_their_data_set_varies_them_in_that_epoch():
    loader, data = Loader(numbered(6, augment=True), 6, shuffle=False), numbered(6, augment=True)

    seen = [next(iter(loader.epoch(epoch)))[0] for epoch in (3, 4)]

    data.set_epoch(3)
    assert torch.equal(seen[0], data.batch(range(6))[0])
    assert not torch.equal(seen[0], seen[1])


def test_without_shuffling_images_come_in_order_in_every_epoch():
    loader = Loader(numbered(5), 2, shuffle=False)

    assert labels(loader, 7) == [[0, 1], [2, 3], [4]]


def test_a_short_last_batch_can_be_left_out():
    loader = Loader(numbered(10), 4, shuffle=True, drop_last=True)

    assert [len(batch) for batch in labels(loader)] == [4, 4]
    assert len(loader) == 2


@pytest.mark.parametrize("count", [16, 18, 19])
def test_training_ranks_share_each_batch_of_the_single_process_evenly(count):
    alone = labels(Loader(numbered(count), 8, shuffle=True, seed=1), 2)
    ranks = [labels(Loader(numbered(count), 8, shuffle=True, seed=1, rank=rank, world=2), 2) for rank in range(2)]

    assert len(ranks[0]) == len(ranks[1])
    for batch, first, second in zip(alone, *ranks, strict=True):
        assert len(first) == len(second)
        assert first + second == batch[: len(batch) // 2 * 2]


@pytest.mark.parametrize(("count", "world"), [(10, 2), (11, 2), (10, 3), (9, 4), (2, 3)])
def test_evaluation_ranks_read_every_image_exactly_once(count, world):
    loaders = [Loader(numbered(count), 4, shuffle=False, rank=rank, world=world) for rank in range(world)]

    read = [number for loader in loaders for batch in labels(loader) for number in batch]

    assert sorted(read) == list(range(count))
    assert all(len(labels(loader)) == len(loader) for loader in loaders)


def test_a_batch_that_ranks_cannot_share_is_refused():
    with pytest.raises(ConfigError, match=r"batch_size 9: cannot be shared evenly by 2 processes. Take a multiple of 2"):
        Loader(numbered(20), 9, shuffle=True, world=2)


def test_a_batch_larger_than_the_set_is_refused_where_none_would_be_left():
    with pytest.raises(ConfigError, match="batch_size 8: the data set has only 5 images"):
        Loader(numbered(5), 8, shuffle=True, drop_last=True)


def test_wrong_numbers_are_reported_together():
    with pytest.raises(ConfigError, match=r"(?s)batch_size=0.*workers=-1.*rank=2"):
        Loader(numbered(5), 0, shuffle=False, workers=-1, rank=2, world=2)


def test_worker_processes_give_the_same_batches(folder_set):
    data = open_dataset("folder", "train", data_dir=folder_set, image_size=32, augment=True)

    alone = list(Loader(data, 3, shuffle=True).epoch(4, start=1))
    with_workers = list(Loader(data, 3, shuffle=True, workers=2).epoch(4, start=1))

    torch.testing.assert_close(with_workers, alone, rtol=0, atol=0)


@pytest.mark.parametrize("workers", [0, 1])
def test_reading_leaves_the_random_numbers_of_the_model_alone(workers):
    torch.manual_seed(0)
    before = torch.get_rng_state()

    list(Loader(numbered(6, augment=True), 2, shuffle=True, workers=workers).epoch(0))

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_names_itself(folder_set, workers):
    broken = folder_set / "train" / "dog" / "2.png"
    broken.write_bytes(broken.read_bytes()[:80])
    data = open_dataset("folder", "train", data_dir=folder_set, image_size=32)

    with pytest.raises(DataError, match=r"^\S*/dog/2.png: the image cannot be read: [^\n]*$"):
        list(Loader(data, 2, shuffle=True, workers=workers).epoch(0))


def processes():
    """Parent and session of every process that runs, as Linux lists them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                found[int(path.parent.name)] = (int(parent), int(session))
    return found


def children():
    return [process for process, (parent, _) in processes().items() if parent == os.getpid()]


def session_of(leader):
    return [process for process, (_, session) in processes().items() if session == leader]


def test_workers_end_with_the_epoch_and_when_it_is_left_early():
    loader = Loader(numbered(40), 2, shuffle=True, workers=2)
    before = len(children())

    epoch = loader.epoch(0)
    next(epoch)
    assert len(children()) == before + 2
    epoch.close()

    assert len(children()) == before


def test_ctrl_c_in_a_terminal_does_not_end_workers_that_the_main_process_still_needs():
    before = set(children())
    epoch = Loader(numbered(40), 2, shuffle=True, workers=2).epoch(0)
    next(epoch)

    for worker in set(children()) - before:  # one of them may not have begun to run
        os.kill(worker, signal.SIGINT)

    assert len(list(epoch)) == 19


class Killed(MemoryImages):
    def batch(self, indices):
        if 0 in indices:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(indices)


def test_a_worker_that_dies_is_told_with_a_way_out():
    data = numbered(4)
    data.__class__ = Killed

    with pytest.raises(DataError, match=r"a worker process that reads images died: .*Use fewer workers"):
        list(Loader(data, 1, shuffle=False, workers=1).epoch(0))


def test_starting_workers_beside_a_thread_warns_of_nothing():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(Loader(numbered(4), 2, shuffle=True, workers=1).epoch(0))
    finally:
        done.set()
        thread.join()


SCRIPT = """
import time
import numpy as np
from quaver.data import Loader, MemoryImages

class Slow(MemoryImages):
    def batch(self, indices):
        time.sleep(0.05)
        return super().batch(indices)

data = Slow(np.zeros((500, 1, 8, 8), np.uint8), np.zeros(500, np.int64), classes=1, mean=[0], std=[1], flip=False)
for number, _ in enumerate(Loader(data, 1, shuffle=True, workers=2).epoch(0)):
    if number == 1:
        print("reading", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_worker_behind(sent):
    with child([sys.executable, "-c", SCRIPT]) as process:
        assert process.stdout.readline() == "reading\n"

        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does
        else:
            process.kill()
        process.wait(timeout=AN_HOUR)

        end = time.monotonic() + AN_HOUR
        while session_of(process.pid) and time.monotonic() < end:
            time.sleep(0.1)
        assert session_of(process.pid) == []
        assert "DataLoader worker" not in process.stderr.read()
