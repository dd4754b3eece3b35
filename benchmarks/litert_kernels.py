"""What LiteRT's three sets of kernels make of one file: XNNPACK's, its own optimized ones, and its reference.

    python benchmarks/litert_kernels.py --networks mobilenet_v2,resnet20 --images 64

XNNPACK is what the interpreter runs by default, and what a program for ``litert`` computes; one for ``litert_reference``
computes as the reference does. Networks of the zoo with random weights, their ranges found on noise. Printed for each set of
kernels and each simulation: the integers that differ, at all quantized tensors and at the first where any do, the largest
difference in steps, and the images that get another class.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

import quaver
from measure import Rows, arguments, report
from quaver.engines import ENGINES
from quaver.engines.litert.flatbuffer import packed, unpacked
from quaver.engines.litert.inspection import RevealingRunner
from quaver.engines.litert.runner import engine, facts_in
from quaver.export import form_for
from quaver.export.integers import simulation
from quaver.models import build
from quaver.program import Program
from quaver.runtime.seal import unsealed

KERNELS = {"XNNPACK": "AUTO", "optimized": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}
SIMULATED = [("XNNPACK", "litert"), ("optimized", "litert"), ("reference", "litert"), ("reference", "litert_reference")]


def made(name: str, size: int) -> Program:
    """A network in the form for LiteRT."""
    torch.manual_seed(0)
    shape = (8, 3, size, size)
    qat = quaver.quant_aware(build(name, num_classes=10), {"target": "litert"}, example_inputs=(torch.randn(shape),)).train()
    for _ in range(4):
        qat(torch.randn(shape))
    return form_for(quaver.convert(qat), ENGINES["litert"])


def revealing(content: bytes, names: list[str], kernels: str) -> RevealingRunner:
    """The file on one set of kernels, with its quantized tensors as further outputs."""
    tensors, model = facts_in(content)["tensors"], unpacked(content)
    model.subgraphs[0].outputs = [*model.subgraphs[0].outputs, *(tensors[name][0] for name in names)]
    resolver = getattr(engine().OpResolverType, kernels)
    return RevealingRunner(packed(model), 1, [tensors[name] for name in names], experimental_op_resolver_type=resolver)


def compared(program: Program, file: Path, images: torch.Tensor) -> Rows:
    """A row for each set of kernels, beside a simulation."""
    content = unsealed(file)
    rows: Rows = []
    for title, target in SIMULATED:
        ours = simulation(program.made_for(target))
        expected = ours.run(images)
        names = [name for name in ours.scales if name in facts_in(content)["tensors"]]
        run = revealing(content, names, KERNELS[title])
        outputs, *shown = run(images.numpy())
        off = {
            name: np.abs(np.rint(value / np.float32(ours.scales[name])) - expected.integers[name])
            for name, value in zip(names, shown, strict=True)
        }
        differ = sum(int((far > 0).sum()) for far in off.values())
        first = next((f"{name}: {int((far > 0).sum())} of {far.size}" for name, far in off.items() if far.any()), "none")
        rows.append(
            {
                "kernels": title,
                "simulated": target,
                "integers that differ": f"{differ} of {sum(map(np.size, off.values()))}",
                "first": first,
                "steps": max(float(far.max()) for far in off.values()),
                "other class": int((outputs.argmax(1) != expected.outputs[0].numpy().argmax(1)).sum()),
            }
        )
    return rows


def main() -> None:
    options = arguments(__doc__, networks="mobilenet_v1,mobilenet_v2,mobilenet_v3_small,resnet20", size=32, images=16)
    rows: Rows = []
    for name in options.networks.split(","):
        program = made(name, options.size)
        images = torch.randn(options.images, 3, options.size, options.size)
        with tempfile.TemporaryDirectory() as folder:
            file = quaver.export(program, folder, target="litert")
            rows += [{"network": name} | row for row in compared(program, file, images)]
        print(*rows[-len(SIMULATED) :], sep="\n", flush=True)
    report(f"One .tflite file on LiteRT's kernels, {options.images} images", rows, options.json)


if __name__ == "__main__":
    main()
