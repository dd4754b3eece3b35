"""Throughput is counted in images of all streams, and runners take turns."""

import numpy as np

from quaver.measure.throughput import CALLS, measure_throughput
from quaver.runtime import Input, Runner


class Counting(Runner):
    """A runner by hand whose calls each move a clock by a second."""

    engine = "counting"
    inputs = [Input("x", (None, 3), np.dtype(np.float32))]

    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def infer(self, batch):
        self.calls.append(self.name)
        return batch


def test_images_of_all_streams_are_counted_against_the_time_of_a_turn(monkeypatch):
    calls = []
    monkeypatch.setattr("quaver.measure.latency.time.perf_counter", lambda: float(len(calls)))
    runners = {"one": Counting("one", calls), "other": Counting("other", calls)}
    runners["other"].in_turns = True

    found = measure_throughput(runners, 5, streams=3, rounds=2, warmup=1)

    assert {name: one.streams for name, one in found.items()} == {"one": 3, "other": 1}
    assert [one.images_per_second for one in found.values()] == [5.0, 5.0]  # a call a second, of five images
    first, second = ["one"] * 3 * CALLS, ["other"] * CALLS
    assert calls == first + second + second + first + first + second
