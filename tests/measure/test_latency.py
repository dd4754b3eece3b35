import numpy as np
import pytest

from quaver.errors import ConfigError, InputError
from quaver.measure import latency
from quaver.measure.latency import interleaved, measure, summary
from quaver.runtime import Input, Runner
from quaver.runtime.example_batches import fixed_batch, random_batch


@pytest.fixture
def clock(monkeypatch):
    """A clock that only jobs move, and what they did."""

    class Clock:
        now, calls = 0.0, []

        def job(self, name, *seconds):
            rest = list(seconds)

            def run():
                self.calls.append(name)
                self.now += rest.pop(0) if len(rest) > 1 else rest[0]

            return run

    clock = Clock()
    clock.calls = []
    monkeypatch.setattr(latency.time, "perf_counter", lambda: clock.now)
    return clock


def image(batch=None, *shape, name="x", dtype=np.float32):
    return Input(name, (batch, *(shape or (3, 4, 4))), np.dtype(dtype))


class Echo(Runner):
    engine = "none"

    def __init__(self, clock, seconds, inputs):
        self.inputs, self.batches = inputs, []
        self.job = clock.job("echo", seconds)

    def infer(self, batch):
        self.batches.append([array.shape for array in batch])
        self.job()
        return batch


def test_jobs_take_turns_and_every_other_round_goes_backwards(clock):
    interleaved({"a": clock.job("a", 1.0), "b": clock.job("b", 1.0), "c": clock.job("c", 1.0)}, rounds=2, warmup=1)

    assert "".join(clock.calls) == "abc" + "cba" + "abc"


def test_warm_up_is_run_and_not_counted(clock):
    taken = interleaved({"a": clock.job("a", 100.0, 50.0, 1.0, 2.0)}, rounds=3, warmup=2)

    assert taken == {"a": [1.0, 2.0, 2.0]}


def test_each_job_has_its_own_times(clock):
    taken = interleaved({"a": clock.job("a", 1.0), "b": clock.job("b", 3.0)}, rounds=4, warmup=0)

    assert taken == {"a": [1.0] * 4, "b": [3.0] * 4}


def test_every_round_is_announced(clock):
    rounds = []

    interleaved({"a": clock.job("a", 1.0)}, rounds=3, warmup=2, on_round=lambda: rounds.append(1))

    assert len(rounds) == 5


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rounds": 1, "warmup": -1}, {"rounds": 1.5}])
def test_rounds_are_whole_and_there_is_one(wrong):
    with pytest.raises(ConfigError, match="takes a whole number"):
        interleaved({"a": lambda: None}, **wrong)


def test_the_median_is_not_moved_by_one_slow_call_and_the_99th_percentile_is_a_call_that_happened():
    found = summary([0.002] * 150 + [0.004, 0.5], batch=8)

    assert (found.median_ms, found.rounds) == (2.0, 152)
    assert found.p99_ms == pytest.approx(4.0)
    assert found.images_per_second == pytest.approx(4000)


def test_with_few_calls_the_99th_percentile_is_the_slowest():
    assert summary([0.001, 0.003, 0.002], batch=1).p99_ms == pytest.approx(3.0)


def test_a_clock_that_stands_still_is_no_division_by_zero():
    assert summary([0.0], batch=1).images_per_second > 0


def test_runners_are_measured_with_batches_of_the_size_asked_for(clock):
    fast, slow = Echo(clock, 0.25, [image()]), Echo(clock, 0.5, [image()])

    found = measure({"fast": fast, "slow": slow}, 6, rounds=3, warmup=1)

    assert (found["fast"].median_ms, found["slow"].median_ms) == (250.0, 500.0)
    assert (found["fast"].images_per_second, found["slow"].images_per_second) == (24.0, 12.0)
    assert fast.batches == slow.batches == [[(6, 3, 4, 4)]] * 4


def test_a_batch_fits_every_input():
    batch = random_batch([image(), image(None, 5, name="ids", dtype=np.int64), image(2, 3, name="fixed")], 7)

    assert [(array.shape, array.dtype.name) for array in batch] == [
        ((7, 3, 4, 4), "float32"),
        ((7, 5), "int64"),
        ((2, 3), "float32"),
    ]
    assert batch[0].std() > 0.5
    assert not batch[1].any()


def test_the_same_batch_is_drawn_every_time():
    np.testing.assert_array_equal(random_batch([image()], 2)[0], random_batch([image()], 2)[0])


def test_a_model_with_other_free_sizes_is_refused():
    with pytest.raises(InputError, match=r"input 'x': takes \(any, 3, any, any\); only the batch can be chosen"):
        random_batch([image(None, 3, None, None)], 1)


@pytest.mark.parametrize(
    ("inputs", "size"),
    [([image()], None), ([image(4)], 4), ([image(4), image()], None), ([Input("s", (), np.dtype(np.float32))], 1)],
)
def test_a_model_made_for_one_batch_size_is_known_by_it(inputs, size):
    assert fixed_batch(inputs) == size
