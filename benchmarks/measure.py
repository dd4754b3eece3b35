"""What the benchmarks share: interleaved medians, the machine in words, a table and a JSON file."""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

Rows = list[dict[str, object]]


def interleaved(
    jobs: dict[str, Callable[[], object]], rounds: int, warmup: int, sync: Callable[[], None]
) -> dict[str, float]:
    """The median seconds of each job; the jobs take turns, so that a slow moment of the machine meets them all."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(warmup + rounds):
        for name, job in jobs.items():
            sync()
            start = time.perf_counter()
            job()
            sync()
            if turn >= warmup:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def machine() -> dict[str, object]:
    """The machine and the versions, for the record."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cpu": cpu, "threads": torch.get_num_threads(), "accelerator": gpu, "torch": torch.__version__}


def arguments(description: str, **options: object) -> argparse.Namespace:
    """Command-line options with their defaults, and ``--json``."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in options.items():
        kind: dict[str, object] = (
            {"action": "store_true"} if default is False else {"type": type(default), "default": default}
        )
        parser.add_argument(f"--{name.replace('_', '-')}", **kind)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    chosen = parser.parse_args()
    keep_to(getattr(chosen, "isa", ""))
    return chosen


def keep_to(isa: str) -> None:
    """Make oneDNN behave like a smaller processor (``AVX2``). It looks once: to be called before any network has run."""
    if isa:
        os.environ["ONEDNN_MAX_CPU_ISA"] = isa


def report(title: str, rows: Rows, path: Path | None) -> None:
    """Print the rows as a table; write them and the machine as JSON."""
    cells = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    widths = [max(len(line[k]) for line in [list(rows[0]), *cells]) for k in range(len(rows[0]))]
    print(f"\n{title}")
    for line in [list(rows[0]), *cells]:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))
    print(json.dumps(machine()))
    if path:
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")
