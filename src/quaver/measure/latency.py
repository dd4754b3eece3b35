"""How long runners take, measured side by side: they take turns, so that a slow moment of the machine meets them all."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from quaver.checking import check, whole
from quaver.runtime import Runner
from quaver.runtime.example_batches import random_batch


@dataclass(frozen=True)
class Latency:
    """What one runner took for batches of ``batch`` images, over ``rounds`` calls."""

    batch: int
    rounds: int
    median_ms: float
    p99_ms: float
    images_per_second: float


def measure(
    runners: Mapping[str, Runner],
    batch: int,
    *,
    rounds: int,
    warmup: int = 3,
    on_round: Callable[[], object] = lambda: None,
) -> dict[str, Latency]:
    """The latency of each runner on the same random batch; ``on_round`` is called after every turn of them all."""
    jobs = {}
    for name, run in runners.items():
        inputs = random_batch(run.inputs, batch)
        jobs[name] = lambda run=run, inputs=inputs: run(*inputs)
    taken = interleaved(jobs, rounds=rounds, warmup=warmup, on_round=on_round)
    return {name: summary(seconds, batch) for name, seconds in taken.items()}


def interleaved(
    jobs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warmup: int = 3,
    on_round: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """The seconds of every call of each job, without the first ``warmup``.

    Every other round goes backwards: no job always finds the caches as the same other one left them.
    """
    check("latency", {"rounds": rounds, "warmup": warmup}, {"rounds": whole(1), "warmup": whole(0)})
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    order = list(jobs)
    for turn in range(warmup + rounds):
        for name in order if turn % 2 == 0 else reversed(order):
            start = time.perf_counter()
            jobs[name]()
            seconds = time.perf_counter() - start
            if turn >= warmup:
                taken[name].append(seconds)
        on_round()
    return taken


def summary(seconds: list[float], batch: int) -> Latency:
    """Median, 99th percentile, and the images per second that the median amounts to.

    >>> summary([0.3, 0.1, 0.2], batch=4)
    Latency(batch=4, rounds=3, median_ms=200.0, p99_ms=300.0, images_per_second=20.0)
    """
    median = max(float(np.median(seconds)), 1e-9)  # a clock may stand still for an empty model
    # a call that really happened, not a value between two: with few rounds it is the slowest
    p99 = float(np.quantile(seconds, 0.99, method="higher"))
    return Latency(batch, len(seconds), 1e3 * median, 1e3 * p99, batch / median)
