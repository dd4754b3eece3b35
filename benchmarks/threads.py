"""Threads that share one runner, against threads with a runner each: how fast, and whether every answer is its own.

``python benchmarks/threads.py --artefact DIR`` prints calls per second of both, in turns, and the medians' ratio;
``--calls 10000`` makes so many calls in each of the threads. Without an artefact, a small network is made and exported.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Barrier

import numpy as np
import torch
from torch import nn

import quaver
from quaver.runtime import Array, Runner, load
from quaver.runtime.example_batches import random_batch


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artefact", type=Path, help="An exported model, or its folder.")
    parser.add_argument("--target", default="openvino", help="The engine of the small network that is made otherwise.")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--calls", type=int, default=300, help="Calls of each thread in each round.")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        artefact = options.artefact or small(Path(folder), options.target)
        measure(artefact, options.threads, options.calls, options.rounds)


def measure(artefact: Path, threads: int, calls: int, rounds: int) -> None:
    """Both ways in turns."""
    shared, own = load(artefact), [load(artefact) for _ in range(threads)]
    batches = [random_batch(shared.inputs, 1, seed=k) for k in range(threads)]
    expected = [load(artefact)(*batch) for batch in batches]
    ways: dict[str, Callable[[int], Runner]] = {"one runner for all": lambda _: shared, "a runner each": own.__getitem__}
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    wrong = dict.fromkeys(ways, 0)
    for _ in range(rounds):
        for way, runner in ways.items():
            seconds, errors = together(runner, batches, expected, calls)
            speeds[way].append(threads * calls / seconds)
            wrong[way] += errors
    for way in ways:
        total = rounds * threads * calls
        print(f"{way}: {median(speeds[way]):.0f} calls a second, {wrong[way]} of {total} answers wrong")
    one, each = (median(speeds[way]) for way in ways)
    print(f"{shared.engine}, {threads} threads: {one / each:.2f} of the speed of separate runners")


def together(
    runner: Callable[[int], Runner], batches: list[list[Array]], expected: list[Array], calls: int
) -> tuple[float, int]:
    """Seconds that all threads took together, and how many answers were not what was asked."""
    start = Barrier(len(batches) + 1)

    def work(k: int) -> int:
        run = runner(k)
        run(*batches[k])
        start.wait()
        return sum(not np.array_equal(run(*batches[k]), expected[k]) for _ in range(calls))

    with ThreadPoolExecutor(len(batches)) as pool:
        counts = [pool.submit(work, k) for k in range(len(batches))]
        start.wait()
        begin = time.perf_counter()
        wrong = sum(count.result() for count in counts)
        return time.perf_counter() - begin, wrong


def small(folder: Path, target: str) -> Path:
    """A network of a few hundred microseconds."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )
    qat = quaver.quant_aware(net, example_inputs=(torch.zeros(2, 3, 64, 64),))
    qat.train()(torch.randn(8, 3, 64, 64))
    return quaver.export(quaver.convert(qat.eval()), folder, target=target)


if __name__ == "__main__":
    main()
