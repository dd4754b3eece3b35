"""How long runners take, measured side by side: they take turns, so that a slow moment of the machine meets them all."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quaver.config.check import check, whole
from quaver.errors import InputError
from quaver.runtime import Array, Input, Runner


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


def fixed_batch(inputs: list[Input]) -> int | None:
    """The batch size that a model was exported for, or None where any will do."""
    sizes = [port.shape[0] for port in inputs if port.shape]
    return None if None in sizes else next((size for size in sizes if size is not None), 1)


def random_batch(inputs: list[Input], batch: int, seed: int = 0) -> list[Array]:
    """Inputs for a model: random images of the shapes it takes, zeros where it takes whole numbers."""
    generator = np.random.default_rng(seed)
    return [_values(port, batch, generator) for port in inputs]


def _values(port: Input, batch: int, generator: np.random.Generator) -> Any:
    rest = port.shape[1:]
    if None in rest:
        sizes = ", ".join("any" if size is None else str(size) for size in port.shape)
        raise InputError(
            f"input {port.name!r}: takes ({sizes}); only the batch can be chosen here. Export the model for one image size."
        )
    shape = [batch if size is None else size for size in port.shape]
    if port.dtype.kind == "f":
        return generator.standard_normal(shape, np.float32).astype(port.dtype)
    return np.zeros(shape, port.dtype)
