"""How many images a second runners get through when several batches are under way, measured side by side, in turns."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from quaver.measure.latency import interleaved
from quaver.runtime import Queue, Runner
from quaver.runtime.example_batches import random_batch

CALLS = 8
"""Batches for each stream in one turn: what is lost where the streams begin and end counts little."""


@dataclass(frozen=True)
class Throughput:
    """What one runner got through in ``rounds`` turns: batches of ``batch`` images in ``streams``."""

    batch: int
    streams: int
    rounds: int
    images_per_second: float


def measure_throughput(
    runners: Mapping[str, Runner],
    batch: int,
    *,
    streams: int | None = None,
    rounds: int,
    warmup: int = 1,
    on_round: Callable[[], object] = lambda: None,
) -> dict[str, Throughput]:
    """The throughput of each runner on the same random batch; one whose calls wait for each other has one stream."""
    with ExitStack() as stack:
        queues = {name: stack.enter_context(Queue(run, 1 if run.in_turns else streams)) for name, run in runners.items()}
        jobs = {name: _turn(queue, batch) for name, queue in queues.items()}
        taken = interleaved(jobs, rounds=rounds, warmup=warmup, on_round=on_round)
    return {
        name: Throughput(batch, queue.streams, rounds, _images(queue, batch) / max(float(np.median(taken[name])), 1e-9))
        for name, queue in queues.items()
    }


def _turn(queue: Queue, batch: int) -> Callable[[], object]:
    """A job: as many batches as fill the streams for a while, from the first submitted to the last done."""
    inputs = tuple(random_batch(queue.run.inputs, batch))
    return lambda: list(queue.map([inputs] * (CALLS * queue.streams)))


def _images(queue: Queue, batch: int) -> int:
    return CALLS * queue.streams * batch
