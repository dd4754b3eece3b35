"""How long do capture, quant_aware and convert take, and how does it grow with the network?

    python benchmarks/passes.py

Baseline: torch.export alone, twice, for the training and the evaluation graph. Wanted: ResNet-101 at most 3 times that,
and at most 2.3 times as long for 400 layers as for 200.
"""

import time
import warnings
from itertools import pairwise

import torch
from torch import nn

import quaver
from measure import Rows, arguments, report
from quaver.models import resnet101

warnings.filterwarnings("ignore", module="torch")


def plain(layers: int) -> nn.Sequential:
    """A net of as many convolutions in a row, each with batch norm and ReLU."""
    blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(layers)]
    return nn.Sequential(nn.Conv2d(3, 8, 1), *blocks)


def export_twice(model: nn.Module, x: torch.Tensor) -> float:
    start = time.perf_counter()
    for mode in (True, False):
        torch.export.export(model.train(mode), (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    return time.perf_counter() - start


def journey(model: nn.Module, x: torch.Tensor) -> dict[str, float]:
    marks = [time.perf_counter()]
    program = quaver.capture(model, (x,))
    marks.append(time.perf_counter())
    qat = quaver.quant_aware(program)
    marks.append(time.perf_counter())
    qat.train()(x)  # ranges to convert with; not part of the time
    pause = time.perf_counter() - marks[-1]
    quaver.convert(qat, save_int8=True)
    marks.append(time.perf_counter() - pause)
    capture, place, convert = (after - before for before, after in pairwise(marks))
    return {"capture s": capture, "quant_aware s": place, "convert s": convert, "total s": capture + place + convert}


def main() -> None:
    options = arguments(__doc__, rounds=3)
    journey(plain(3), torch.zeros(2, 3, 16, 16))  # first use of torch.export loads half of torch
    rows: Rows = []
    nets = {f"plain {layers}": lambda layers=layers: (plain(layers), 16) for layers in (50, 100, 200, 400)}
    nets["resnet101"] = lambda: (resnet101(), 64)
    for name, make in nets.items():
        best: dict[str, float] = {}
        for _ in range(options.rounds):  # alternating; the fastest of each, since nothing here can be too fast
            model, size = make()
            x = torch.randn(2, 3, size, size)
            figures = {"torch.export twice s": export_twice(model, x)} | journey(model, x)
            best = {key: min(value, best.get(key, value)) for key, value in figures.items()}
        rows.append({"net": name, **best, "over export": best["total s"] / best["torch.export twice s"]})
    total = {str(row["net"]): float(row["total s"]) for row in rows}  # type: ignore[arg-type]
    report("capture + quant_aware + convert", rows, options.json)
    print(f"growth from 200 to 400 layers: {total['plain 400'] / total['plain 200']:.2f}")


if __name__ == "__main__":
    main()
