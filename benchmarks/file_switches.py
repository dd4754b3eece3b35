"""How often does the work move from one file of Quaver to another, on the way from a model to a checked int8 file?

    python benchmarks/file_switches.py
    python benchmarks/file_switches.py --where 15     # the pairs of files that the most switches are between

Whoever follows a call with a debugger meets each of them. A switch is a call of a function of ``src/quaver`` in another file
than the last call was in; what torch and the engines do inside is not looked at. The model: conv, batch norm, ReLU, linear.
"""

import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import quaver
from measure import Rows, arguments, report
from quaver.measure.verify import verify

warnings.filterwarnings("ignore")
SOURCE = str(Path(quaver.__file__).parent)
WANTED = {"quant_aware": 300, "convert": 200, "export": 150, "verify": 180}


def files_called(job: Callable[[], Any]) -> tuple[list[str], Any]:
    """The file of every function of ours that a job calls, in order; and what the job gives."""
    files: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCE):
            files.append(file.removeprefix(f"{SOURCE}/"))

    sys.setprofile(note)
    try:
        result = job()
    finally:
        sys.setprofile(None)
    return files, result


def journey(folder: Path) -> dict[str, list[str]]:
    """The files that are called on the way, stage by stage."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Linear(6, 10))
    x, files = torch.randn(4, 3, 8, 8), {}
    files["quant_aware"], prepared = files_called(lambda: quaver.quant_aware(model, example_inputs=(x,)))
    prepared.train()(x)
    files["convert"], frozen = files_called(lambda: quaver.convert(prepared))
    files["export"], file = files_called(lambda: quaver.export(frozen, folder / "model.xml"))
    files["verify"], _ = files_called(lambda: verify(frozen, file, [x.numpy()]))
    return files


def main() -> None:
    options = arguments(__doc__, where=0)
    with tempfile.TemporaryDirectory() as folder:
        journey(Path(folder))  # first use: imports, and what is found out once per process
        files = journey(Path(folder))
    switches = {stage: [pair for pair in pairwise(called) if len(set(pair)) == 2] for stage, called in files.items()}
    rows: Rows = [
        {"stage": stage, "switches": len(pairs), "wanted": WANTED[stage], "calls": len(called), "files": len(set(called))}
        for (stage, pairs), called in zip(switches.items(), files.values(), strict=True)
    ]
    report("switches between files of src/quaver", rows, options.json)
    for stage, pairs in switches.items() if options.where else ():
        print(f"\n{stage}")
        for (before, after), times in Counter(pairs).most_common(options.where):
            print(f"{times:5}  {before} -> {after}")


if __name__ == "__main__":
    main()
