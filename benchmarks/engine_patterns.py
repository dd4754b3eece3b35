"""Does an engine compute what the simulation computes? Every pattern the passes can produce, against every engine.

    python benchmarks/engine_patterns.py                          OpenVINO and ONNX Runtime
    python benchmarks/engine_patterns.py --engines openvino --word residual --isa AVX2
    python benchmarks/engine_patterns.py --engines litert,tensorrt

Each pattern is a small network, quantized for the engine, trained for a few steps on random images, exported, and run by
both. Printed for each engine: how many integers differ at any quantized tensor, or values at the output, and the largest
difference in steps; exact means bit for bit. (ONNX Runtime computes the last layer in float, in an order of its own: values
at the output count as different there if they differ by a thousandth of a step. It is also what executes the files for
TensorRT.) ``--isa`` makes OpenVINO behave like a smaller processor (AVX2, …).
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

import quaver
from engine_nets import PATTERNS
from measure import Rows, arguments, report
from quaver.engines import ENGINES
from quaver.export import form_for
from quaver.export.integers import Inside, simulation

warnings.filterwarnings("ignore")


def compared(name: str, target: str, images: int, seed: int, saturation_safe: bool) -> tuple[int, int, float]:
    """How many integers and outputs differ, of how many, and the largest difference in steps."""
    torch.manual_seed(seed)
    net, shape = PATTERNS[name]()
    config: dict[str, object] = {"target": target, "saturation_safe": saturation_safe}
    if name.startswith("matmul"):  # stays float unless it is asked for
        config["quantize_op_types"] = ["conv2d", "matmul"]
    qat = quaver.quant_aware(net, config, example_inputs=(torch.randn(2, *shape),)).train()
    optimizer = torch.optim.SGD(qat.parameters(), 0.01)
    for _ in range(4):
        loss = qat(torch.randn(8, *shape)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    program = form_for(quaver.convert(qat), ENGINES[target])
    x = torch.randn(images, *shape)
    with tempfile.TemporaryDirectory() as folder:
        file = quaver.export(program, Path(folder), target=target)
        ours = simulation(program)
        outputs, integers = ours.run(x)
        step = max(float(outputs[0].abs().max()) / 127, 1e-9)
        # as deployed, and turned inside out: an engine may compute otherwise when it has to show its inside
        pairs = [(outputs[0].numpy() / step, quaver.runtime.load(file)(x.numpy()) / step)]
        if ENGINES[target].shows_inside:
            _, whole = Inside.of(file, ours.scales).run(x.numpy())
            pairs += [(integers[name], whole[name]) for name in whole]
    differences = [np.abs(expected - got) for expected, got in pairs]
    if target in ("onnx", "tensorrt"):
        differences[0][differences[0] < 1e-3] = 0
    wrong = sum(int((difference > 0).sum()) for difference in differences)
    return wrong, sum(d.size for d in differences), max(float(d.max()) for d in differences)


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
