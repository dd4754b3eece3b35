import pytest
import torch

from quaver.analysis.sampling import Reservoir, some_values


def test_a_small_tensor_is_taken_whole_and_copied():
    x = torch.randn(3, 4, 5)

    sample = some_values(x, 0)
    x.zero_()

    assert sample.shape == (60,)
    assert (sample != 0).any()


@pytest.mark.parametrize("shape", [(8, 64, 32, 32), (250, 16, 32, 32), (32, 3, 224, 224), (7, 1024, 7, 7), (1, 100_003)])
def test_a_large_tensor_gives_about_as_many_as_asked_for(shape):
    sample = some_values(torch.zeros(shape), 3, limit=1000)

    assert 900 <= sample.numel() <= 1001


@pytest.mark.parametrize("axis", range(4))
def test_values_come_from_everywhere(axis):
    shape = [16, 32, 32, 32]
    places = torch.arange(shape[axis]).float().view([-1 if axis == other else 1 for other in range(4)]).expand(shape)

    sample = some_values(places, 0, limit=4096)

    counts = torch.bincount(sample.int(), minlength=shape[axis]).float()
    assert counts.min() > 0.5 * counts.mean()


def test_another_batch_gives_other_values():
    x = torch.arange(1_000_000.0)

    assert not set(some_values(x, 0, limit=100).tolist()) & set(some_values(x, 1, limit=100).tolist())


def test_the_order_of_memory_does_not_matter():
    x = torch.randn(4, 8, 5, 5)

    plain, last = some_values(x, 0), some_values(x.to(memory_format=torch.channels_last), 0)

    assert torch.equal(plain.sort().values, last.sort().values)


def kept_of(limit, count, size=7):
    reservoir = Reservoir(limit)
    for part in torch.arange(count).split(size):
        reservoir.offer([part[:, None].float()], part)
    return reservoir


def test_a_reservoir_keeps_no_more_than_its_limit_and_labels_stay_with_images():
    batches = kept_of(20, 500).batches(8)

    assert [len(images) for (images,), _ in batches] == [8, 8, 4]
    for (images,), labels in batches:
        assert torch.equal(images[:, 0].long(), labels)


def test_a_reservoir_keeps_everything_there_is_room_for():
    (images,), _ = kept_of(100, 30).batches(100)[0]

    assert images[:, 0].tolist() == list(range(30))


def test_a_reservoir_is_the_same_each_time_and_takes_from_the_whole_set():
    first, second = (kept_of(200, 2000).batches(200)[0][1] for _ in range(2))

    assert torch.equal(first, second)
    assert 800 < first.float().mean() < 1200
    assert first.max() > 1900


def test_a_reservoir_without_labels_has_none():
    reservoir = Reservoir(3)

    reservoir.offer([torch.zeros(5, 2)], None)

    assert reservoir.batches(10)[0][1] is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_reservoir_leaves_out_images_that_are_not_finite_and_counts_them(bad):
    images = torch.arange(12.0).view(6, 2)
    images[1, 0] = images[4, 1] = bad
    reservoir = Reservoir(10)

    reservoir.offer([images], torch.arange(6))

    assert reservoir.not_finite == 2
    assert reservoir.batches(10)[0][1].tolist() == [0, 2, 3, 5]


def test_a_reservoir_of_nothing_keeps_nothing():
    assert kept_of(0, 30).batches(10) == []
