"""What do saturation-safe weights cost? QAT with them and over the full range, several seeds each, top-1 on CIFAR-10.

    python benchmarks/saturation_safe.py --data-dir DIR --floats OUT --out OUT2 --jobs 8 --epochs 40

DIR holds cifar-10-batches-bin; OUT/MODEL/float.safetensors are the float weights that `accuracy.py` trains. Each seed is
another order of images, and both kinds start from the same weights: a single run is uncertain by more than what is asked
for here. In simulation; what full range costs on a processor without VNNI, `faithful.py --full-range 1` says.
"""

import statistics
import warnings
from argparse import Namespace
from pathlib import Path

from accuracy import trained_with_quantizers
from cifar import OPTIONS, Images, accuracy, both_sets, each_variant, leave
from measure import arguments, report

warnings.filterwarnings("ignore", module="torch")

KINDS = ("safe", "full_range")


def run(variant: str, options: Namespace, data: Images, test: Images) -> None:
    name, kind, seed = variant.split("-")
    options.seed = int(seed)
    weights = Path(options.floats) / name / "float.safetensors"
    qat = trained_with_quantizers(name, weights, options, data, safe=kind == "safe")
    leave(variant, {"model": name, "kind": kind, "seed": options.seed, "top1": accuracy(qat, test)}, options)


def main() -> None:
    options = arguments(
        __doc__,
        **OPTIONS,
        floats="",
        models="mobilenet_v1,mobilenet_v2,resnet20",
        seeds=4,
        variants="",
        target="openvino",
        epochs=40,
        qat_epochs=0,
        calibrate=0,
    )
    Path(options.out).mkdir(parents=True, exist_ok=True)
    models = options.models.split(",")
    every = [f"{name}-{kind}-{seed}" for name in models for seed in range(options.seeds) for kind in KINDS]
    wanted = options.variants.split(",") if options.variants else every
    if options.jobs > 1:
        figures = each_variant("--variants", wanted, options, lambda _: None)
    else:
        data, test = both_sets(options)
        figures = each_variant("--variants", wanted, options, lambda variant: run(variant, options, data, test))
    if options.variants:
        return
    rows = []
    for name in models:
        safe, full = ([one["top1"] for one in figures if (one["model"], one["kind"]) == (name, kind)] for kind in KINDS)
        differences = [a - b for a, b in zip(safe, full, strict=True)]
        error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
        means = {kind: statistics.mean(values) for kind, values in zip(KINDS, (safe, full), strict=True)}
        rows.append({"model": name, **means, "difference": statistics.mean(differences), "standard error": error})
    report(f"Saturation-safe and full range, mean of {options.seeds} seeds, CIFAR-10 top-1", rows, options.json)


if __name__ == "__main__":
    main()
