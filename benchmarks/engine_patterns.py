"""Does an engine compute what the simulation computes? Every pattern the passes can produce, against every engine.

    python benchmarks/engine_patterns.py                          OpenVINO and ONNX Runtime
    python benchmarks/engine_patterns.py --engines openvino --word residual --isa AVX2

Each pattern is a small network, quantized for the engine, trained for a few steps on random images, exported, and run by
both. Printed for each engine: the share of integers that differ at any quantized tensor, and the largest difference in
steps; 0 of n means bit for bit. ``--isa`` makes OpenVINO behave like a smaller processor (AVX2, AVX512_CORE_VNNI).
"""

import os
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")


def choose_isa() -> None:
    """Before the engine is loaded: it looks once."""
    if "--isa" in sys.argv:
        os.environ["ONEDNN_MAX_CPU_ISA"] = sys.argv[sys.argv.index("--isa") + 1]


choose_isa()

import numpy as np  # noqa: E402
import torch  # noqa: E402

import quaver  # noqa: E402
from engine_nets import PATTERNS  # noqa: E402
from measure import Rows, arguments, report  # noqa: E402
from quaver.export import form_for  # noqa: E402
from quaver.measure.integers import Inside, simulation  # noqa: E402
from quaver.targets import TARGETS  # noqa: E402


def compared(name: str, target: str, images: int, seed: int, saturation_safe: bool) -> tuple[int, int, float]:
    """How many integers differ, of how many, and the largest difference in steps."""
    torch.manual_seed(seed)
    net, shape = PATTERNS[name]()
    config = {"target": target, "saturation_safe": saturation_safe}
    qat = quaver.quant_aware(net, config, example_inputs=(torch.randn(2, *shape),)).train()
    optimizer = torch.optim.SGD(qat.parameters(), 0.01)
    for _ in range(4):
        loss = qat(torch.randn(8, *shape)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    program = form_for(quaver.convert(qat), TARGETS[target])
    with tempfile.TemporaryDirectory() as folder:
        file = quaver.export(program, Path(folder), target=target)
        ours = simulation(program)
        theirs = Inside(file, ours.scales)
        x = torch.randn(images, *shape)
        outputs, integers = ours.run(x)
        got, whole = theirs.run(x.numpy())
    differences = [np.abs(a - b) for name in whole for a, b in [(integers[name], whole[name])]]
    step = max(float(np.abs(outputs[0].numpy()).max()) / 127, 1e-9)
    last = np.abs(outputs[0].numpy() - got[0]) / step
    wrong = sum(int((difference > 0).sum()) for difference in differences)
    return wrong, sum(d.size for d in differences), max([float(last.max()), *(float(d.max()) for d in differences)])


def main() -> None:
    options = arguments(__doc__, engines="openvino,onnx", word="", images=64, seeds=2, isa="", saturation_safe=1)
    rows: Rows = []
    for name in PATTERNS:
        if options.word not in name:
            continue
        row: dict[str, object] = {"pattern": name}
        for target in options.engines.split(","):
            wrong = total = 0
            worst = 0.0
            try:
                for seed in range(options.seeds):
                    off, of, largest = compared(name, target, options.images, seed, bool(options.saturation_safe))
                    wrong, total, worst = wrong + off, total + of, max(worst, largest)
                row[target] = f"{wrong} of {total}" if worst else f"exact ({total})"
                row[f"{target} worst"] = worst
            except quaver.QuaverError as error:
                row[target], row[f"{target} worst"] = str(error)[:60], float("nan")
        rows.append(row)
        print(row, flush=True)
    report("Integers that differ between simulation and engine", rows, options.json)


if __name__ == "__main__":
    main()
