"""How long it takes until something is on the screen: help, the version, and the imports of quaver and its runtime.

``python benchmarks/start_up.py`` prints for each the least wall time and the least processor time of some rounds, each in a
process of its own. On a machine that does something else besides, processor time is what an idle one would take.
"""

import argparse
import os
import resource
import subprocess
import sys
import time

QUAVER = [sys.executable, "-m", "quaver"]
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "import torch": [sys.executable, "-c", "import torch"],
    "import quaver": [sys.executable, "-c", "import quaver"],
    "import quaver.runtime": [sys.executable, "-c", "import quaver.runtime"],
    "import all of it": [sys.executable, "-c", "from quaver import *"],
    "quaver --version": [*QUAVER, "--version"],
    "quaver --help": [*QUAVER, "--help"],
    "quaver quantize --help": [*QUAVER, "quantize", "--help"],
    "quaver bench --help": [*QUAVER, "bench", "--help"],
    "quaver --lang zh": [*QUAVER, "--lang", "zh"],
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(options.rounds):
        for name, command in COMMANDS.items():
            times[name].append(measured(command))
    for name, measurements in times.items():
        wall, processor = (min(column) for column in zip(*measurements, strict=True))
        print(f"{name:24} {wall:6.2f} s, of the processor {processor:6.2f} s", flush=True)


def measured(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a command."""
    before, start = _of_children(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"COLUMNS": "120"})
    return time.perf_counter() - start, _of_children() - before


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
