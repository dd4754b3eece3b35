"""What is left when two save into one folder at once? Rounds of two savers and a reader, in threads and in processes.

    python benchmarks/saves_at_once.py                         200 rounds of each
    python benchmarks/saves_at_once.py --rounds 5 --seed 1     a few

In a round each saver saves a program of its own three times, at random moments, and a reader loads all the while. Counted:
saves and loads, those that fail, loads that give neither program, folders that do not load in the end, files too many.
"""

import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import quaver
from measure import arguments, report

SAVES = 3
GOOD = ("rounds", "saves", "loads")
BAD = ("saves: failed", "loads: failed", "loads: torn", "rounds: failed", "rounds: torn", "files too many")
Found = Counter[str]
Work = Callable[[], Found]


def programs() -> list[quaver.Program]:
    """Two small ones, whose tensors have the same names and other shapes."""
    nets = [nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 4, 1)) for width in (4, 8)]
    return [quaver.capture(net, (torch.zeros(1, 3, 8, 8),)) for net in nets]


def are_equal(one: quaver.Program, other: quaver.Program) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def attempt(what: str, work: Callable[[], bool]) -> Found:
    """Count what went well, what gave something wrong, and what failed."""
    try:
        return Found({what: 1} if work() else {what: 1, f"{what}: torn": 1})
    except Exception:  # whatever it is, it is counted
        traceback.print_exc()
        return Found({what: 1, f"{what}: failed": 1})


def one_round(folder: Path, known: list[quaver.Program], chance: random.Random, run: Callable[[list[Work]], Found]) -> Found:
    def load() -> bool:
        loaded = quaver.load(folder)
        return any(are_equal(loaded, one) for one in known)

    def several(what: str, pauses: list[float], work: Callable[[], bool]) -> Found:
        found = Found()
        for pause in pauses:
            time.sleep(pause)
            found += attempt(what, work)
        return found

    def pauses(number: int) -> list[float]:
        return [chance.uniform(0, 0.004) for _ in range(number)]

    def saver(program: quaver.Program, when: list[float]) -> Work:
        return lambda: several("saves", when, lambda: quaver.save(program, folder) == folder)

    quaver.save(known[0], folder)
    when = pauses(3 * SAVES)
    found = run([*(saver(program, pauses(SAVES)) for program in known), lambda: several("loads", when, load)])
    return found + attempt("rounds", load) + Found({"files too many": len(os.listdir(folder)) - 2})


def in_threads(works: list[Work]) -> Found:
    found: list[Found] = []
    threads = [threading.Thread(target=lambda work=work: found.append(work())) for work in works]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found, Found())


def in_processes(works: list[Work]) -> Found:
    """Each in a child made by fork, which has torch already; what it found comes back through a pipe."""
    found, children = Found(), []
    for work in works:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, json.dumps(work()).encode())
            finally:
                os._exit(0)
        os.close(writing)
        children.append((child, reading))
    for child, reading in children:
        with open(reading) as pipe:
            found += Found(json.loads(pipe.read()))
        os.waitpid(child, 0)
    return found


def main() -> int:
    options = arguments(__doc__ or "", rounds=200, seed=0)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    known = programs()
    rows: list[dict[str, object]] = []
    for run in (in_processes, in_threads):
        found = Found()
        with tempfile.TemporaryDirectory() as place:
            for turn in range(options.rounds):
                chance = random.Random(options.seed * 1_000_003 + turn)
                found += one_round(Path(place) / str(turn), known, chance, run)
        rows.append({"where": run.__name__.replace("_", " ")} | {what: found[what] for what in (*GOOD, *BAD)})
    report("two savers and a reader in one folder", rows, options.json)
    return any(row[what] for row in rows for what in BAD)


if __name__ == "__main__":
    sys.exit(main())
