"""Damage files and read them, many times: is there a crash, a hang, a traceback, or a file that was changed?

    python tests/fuzz/run.py --cases 1000 --seed 0 [--reader program]

Cases are read in a process of their own with limited memory, so that a crash or a hang is seen and is the case's. A case
passes if what was read runs, or if an error of Quaver's own says why not; within five seconds of processor time, and with
the files as they were. Every case follows from the seed: ``--only 17`` repeats one, with its traceback.
"""

import argparse
import json
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

MEMORY = 12 << 30  # bytes of address space, of which torch takes some four before anything is read
PATIENCE = 120  # seconds without a word from the process: its machine may be busy
SECONDS = 5.0  # of processor time
PASSED = ("read", "refused")


def one_case(reader, whole: Path, place: Path, name: str, seed: int, case: int) -> tuple[str, str]:
    """What became of a case, and the words that go with it."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader.damage(Random(f"{name}/{seed}/{case}"), place)
        return looked_at(reader, place)


def looked_at(reader, place: Path) -> tuple[str, str]:
    """What became of reading what lies there, and the words that go with it."""
    from quaver.errors import QuaverError

    before = _content(place)
    started = time.process_time()
    try:
        reader.read(place)
        outcome, words = "read", ""
    except QuaverError as error:
        outcome, words = ("refused", str(error)) if str(error).strip() else ("traceback", "an error without words")
    except Exception:
        outcome, words = "traceback", traceback.format_exc()
    taken = time.process_time() - started
    if outcome in PASSED and taken > SECONDS:
        outcome, words = "slow", f"{taken:.1f} seconds: {words}"
    if outcome in PASSED and _content(place) != before:
        outcome, words = "changed", "the files are not as they were"
    return outcome, words


def _content(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def child(name: str, seed: int, cases: list[int]) -> None:
    """The cases one after the other, with a line before and after each."""
    words_to = sys.stdout
    sys.stdout = sys.stderr
    import torch

    from fuzz.readers import READERS

    torch.set_num_threads(1)
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        whole, place = Path(folder, "whole"), Path(folder, "case")
        whole.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.write(whole)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for case in cases:
            print(json.dumps({"begins": case}), file=words_to, flush=True)
            outcome, words = one_case(reader, whole, place, name, seed, case)
            print(json.dumps({"case": case, "outcome": outcome, "words": words}), file=words_to, flush=True)


def outcomes(name: str, seed: int, cases: list[int]) -> Iterator[tuple[int, str, str]]:
    """Case, outcome and words of each; after a crash or a hang, another process goes on behind it."""
    while cases:
        command = [sys.executable, __file__, "--child", name, "--seed", str(seed), "--cases", ",".join(map(str, cases))]
        with (
            tempfile.TemporaryFile("w+", errors="replace") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            current = None
            try:
                for line in _lines(process):
                    if "begins" in line:
                        current = line["begins"]
                    else:
                        yield line["case"], line["outcome"], line["words"]
                        cases, current = cases[cases.index(current) + 1 :], None
            except TimeoutError:
                process.kill()
                process.wait()
                if current is None:
                    raise RuntimeError(f"{name}: the process does not begin.") from None
                yield current, "hang", f"no word for {PATIENCE} seconds"
            else:
                process.wait()
                if current is None and cases:
                    errors.seek(0)
                    raise RuntimeError(f"{name}: the process ended by {process.returncode}: {errors.read()[-2000:]}")
                if current is not None:
                    errors.seek(0)
                    yield current, "crash", f"the process ended by {process.returncode}: {errors.read()[-500:]}"
        if current is not None:
            cases = cases[cases.index(current) + 1 :]


def _lines(process: subprocess.Popen) -> Iterator[dict]:
    assert process.stdout is not None
    while True:
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError
        line = process.stdout.readline()
        if not line:
            return
        yield json.loads(line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", action="append")
    parser.add_argument("--cases", default="1000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.seed, [int(case) for case in options.cases.split(",")])
        return 0
    from fuzz.readers import READERS

    failed = 0
    for name in options.reader or READERS:
        cases = list(range(int(options.cases))) if options.only is None else [options.only]
        counts: Counter[str] = Counter()
        for case, outcome, words in outcomes(name, options.seed, cases):
            counts[outcome] += 1
            if outcome not in PASSED or options.only is not None:
                print(f"{name} {case}: {outcome}: {words}", flush=True)
        failed += sum(count for outcome, count in counts.items() if outcome not in PASSED)
        print(
            f"{name}: {len(cases)} cases, " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()),
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
