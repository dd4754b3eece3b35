"""Does one epoch from a calibrated start reach what six reach from the float weights? Top-1 on CIFAR-10, in simulation.

    python benchmarks/short_qat.py --data-dir DIR --weights WEIGHTS --out OUT --models resnet20,resnet56
    python benchmarks/short_qat.py --data-dir DIR --weights WEIGHTS --out OUT --models resnet20 --images 10000 --bf16 1

DIR holds ``cifar-10-batches-bin``, WEIGHTS the float weights ``NAME.safetensors``. ``calibrated`` is `quaver.calibrate` with
256 images and no training; ``one`` goes on from there for an epoch, ``six`` starts from the float weights and has six. Both
learn from the float model's outputs and from the labels, on the same images, with the same rates along one cycle. ``labels``
has six without the float model, as `accuracy.py` trains. A float model that has not learned all it can is surpassed by
whoever trains longer, so look at the float model's epochs, too. ``--rate 0.1`` trains at a tenth of the usual rates.
"""

import warnings
from argparse import Namespace
from pathlib import Path

import torch

import quaver
from accuracy import LEARNING_RATES, QAT_LR
from cifar import OPTIONS, Images, accuracy, both_sets, each_variant, leave, load_weights, train, zoo_model
from measure import arguments, report

warnings.filterwarnings("ignore", module="torch")

KINDS = {"calibrated": (True, 0), "one": (True, 1), "six": (False, 6), "labels": (False, 6)}
"""For each way, whether it starts calibrated, and its epochs."""
DISTILL = 0.7
SEEN = 256


def started(name: str, options: Namespace, images: torch.Tensor, *, calibrated: bool) -> quaver.Program:
    """The program that training begins with."""
    model = load_weights(zoo_model(name, options), Path(options.weights) / f"{name}.safetensors", options)
    if calibrated:
        return quaver.calibrate(model.eval(), [images[:SEEN]], images=SEEN)
    return quaver.quant_aware(model, example_inputs=(images[:2],))


def run(variant: str, options: Namespace, data: Images, test: Images) -> None:
    name, kind = variant.split("-")
    calibrated, epochs = KINDS[kind]
    program = started(name, options, data[0], calibrated=calibrated)
    teacher = load_weights(zoo_model(name, options), Path(options.weights) / f"{name}.safetensors", options).eval()
    figures = {"model": name, "kind": kind, "images": len(data[0]), "float": accuracy(teacher, test)}
    if epochs:
        rate, distilled = options.rate * QAT_LR * LEARNING_RATES[name], kind != "labels"
        teaching = {"teacher": teacher, "distill": DISTILL} if distilled else {}
        torch.manual_seed(options.seed)
        train(program, data, epochs, rate, warm_up=0.05, bf16=options.bf16, **teaching)
    leave(variant, figures | {"top1": accuracy(program, test)}, options)


def main() -> None:
    options = arguments(
        __doc__, **OPTIONS, weights="", models="resnet20,resnet56,mobilenet_v3_small", kinds="", variants="", rate=1.0
    )
    Path(options.out).mkdir(parents=True, exist_ok=True)
    kinds = options.kinds.split(",") if options.kinds else list(KINDS)
    every = [f"{name}-{kind}" for name in options.models.split(",") for kind in kinds]
    data, test = both_sets(options)
    wanted = options.variants.split(",") if options.variants else every
    figures = each_variant("--variants", wanted, options, lambda variant: run(variant, options, data, test))
    if options.variants:
        return
    rows = []
    for name in options.models.split(","):
        tops = {one["kind"]: one["top1"] for one in figures if one["model"] == name}
        floating = next(one["float"] for one in figures if one["model"] == name)
        drops = {f"drop {kind}": floating - top1 for kind, top1 in tops.items()}
        rows.append({"model": name, "images": len(data[0]), "float": floating} | tops | drops)
    report("Top-1, in simulation", rows, options.json)


if __name__ == "__main__":
    main()
