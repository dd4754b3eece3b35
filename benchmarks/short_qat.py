"""Does one epoch from a calibrated start reach what six reach from the float weights? Top-1 on CIFAR-10, in simulation.

    python benchmarks/short_qat.py --data-dir DIR --weights WEIGHTS --out OUT --models resnet20,resnet56
    python benchmarks/short_qat.py --data-dir DIR --weights WEIGHTS --out OUT --models resnet20 --images 10000 --bf16 1

DIR holds ``cifar-10-batches-bin``, WEIGHTS the float weights ``NAME.safetensors``. ``calibrated`` is `quaver.calibrate`
with 256 images and no training. ``one`` goes on from there for an epoch, on the labels and the float model's outputs;
``teacher`` on these outputs alone. ``steady`` has a rate that stays and ends in the mean of the weights of its last three
quarters; ``slow`` is the same at three tenths of the rate. ``six`` starts from the float weights and has six epochs, on
the same images, with the same rates along one cycle; ``labels`` has six without the float model, as `accuracy.py` trains.
``measured`` is each of them with the statistics of its batch norms measured anew, on 100 batches. A float model that has
not learned all it can is surpassed by whoever trains longer, so look at the float model's epochs, too. ``--rate 0.1``
trains at a tenth of the usual rates; ``--seeds 0,1`` gives the mean of several runs.
"""

import copy
import warnings
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import nn

import quaver
from accuracy import LEARNING_RATES, QAT_LR
from cifar import OPTIONS, Images, accuracy, batches, both_sets, each_variant, leave, load_weights, train, zoo_model
from measure import Rows, arguments, report

warnings.filterwarnings("ignore", module="torch")

SEEN = 256
BATCH = 256
SETTLED = 0.25
"""The part of a steady run whose weights are not in the mean."""
MEASURED = 100
"""Batches that a batch norm's statistics are the mean of."""


@dataclass(frozen=True)
class Way:
    """How a program is trained."""

    calibrated: bool = True
    epochs: int = 1
    distill: float = 0.7
    rate: float = 1.0
    steady: bool = False


WAYS = {
    "calibrated": Way(epochs=0),
    "one": Way(),
    "teacher": Way(distill=1.0),
    "steady": Way(steady=True),
    "slow": Way(steady=True, rate=0.3),
    "six": Way(calibrated=False, epochs=6),
    "labels": Way(calibrated=False, epochs=6, distill=0.0),
}


class Mean:
    """The mean of a program's weights over the updates ``after`` so many."""

    def __init__(self, program: quaver.Program, after: int) -> None:
        self.weights = list(program.parameters())
        self.kept = [weight.detach().clone() for weight in self.weights]
        self.after, self.count = after, 0

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are."""
        self.after -= 1
        if self.after < 0:
            self.count += 1
            torch._foreach_lerp_(self.kept, self.weights, 1 / self.count)

    @torch.no_grad()
    def place(self) -> None:
        """Put the mean where the weights are."""
        torch._foreach_copy_(self.weights, self.kept)


class Network:
    """A float model, and the programs that training begins with."""

    def __init__(self, name: str, options: Namespace, data: Images) -> None:
        self.name, self.options, self.data = name, options, data
        self.floating = load_weights(zoo_model(name, options), Path(options.weights) / f"{name}.safetensors", options).eval()
        self.placed = quaver.quant_aware(copy.deepcopy(self.floating).train(), example_inputs=(data[0][:2],))
        self.calibrated = quaver.calibrate(self.placed, [data[0][:SEEN]], images=SEEN)

    def measured(self, program: quaver.Program) -> quaver.Program:
        """A program, its batch norms' statistics measured anew, on images as they were trained with."""
        images = (x for _, (x, _) in zip(range(MEASURED), batches(*self.data, BATCH), strict=False))
        quaver.reestimate_batch_norm(program, images)
        return program

    def trained(self, way: Way, seed: int) -> quaver.Program:
        """A program after training."""
        program = copy.deepcopy(self.calibrated if way.calibrated else self.placed)
        teaching: dict[str, nn.Module | float] = {"teacher": self.floating, "distill": way.distill} if way.distill else {}
        rate = self.options.rate * way.rate * QAT_LR * LEARNING_RATES[self.name]
        mean = Mean(program, after=round(SETTLED * way.epochs * (len(self.data[0]) // BATCH)))
        torch.manual_seed(seed)
        how = {"warm_up": 0.05, "bf16": self.options.bf16, "steady": way.steady}
        train(program, self.data, way.epochs, rate, size=BATCH, after_step=mean.update, **how, **teaching)
        if way.steady:
            mean.place()
        return program


def run(name: str, options: Namespace, data: Images, test: Images) -> None:
    network = Network(name, options, data)
    figures = {"model": name, "images": len(data[0]), "float": accuracy(network.floating, test)}
    for kind in options.kinds.split(","):
        way, tops, measured = WAYS[kind], [], []
        for seed in map(int, options.seeds.split(",")) if way.epochs else [0]:
            program = network.trained(way, seed) if way.epochs else network.calibrated
            tops.append(accuracy(program, test))
            measured.append(accuracy(network.measured(program), test) if way.epochs else tops[-1])
        figures |= {kind: fmean(tops), f"{kind}, measured": fmean(measured), f"{kind}, each": [tops, measured]}
        leave(name, figures, options)


def mean_drops(rows: Rows, kinds: Iterable[str]) -> dict[str, object]:
    """What each way loses, the mean over the networks."""
    ways = [title for kind in kinds for title in (kind, f"{kind}, measured")]
    return {"model": "mean drop", "images": "", "float": ""} | {
        way: round(fmean(row["float"] - row[way] for row in rows), 3) for way in ways
    }


def main() -> None:
    options = arguments(
        __doc__,
        **OPTIONS,
        weights="",
        models="resnet20,resnet56,mobilenet_v3_small",
        kinds=",".join(WAYS),
        rate=1.0,
        seeds="0",
    )
    Path(options.out).mkdir(parents=True, exist_ok=True)
    data, test = both_sets(options) if options.jobs == 1 else ((), ())
    names = options.models.split(",")
    rows = each_variant("--models", names, options, lambda name: run(name, options, data, test))
    if len(names) > 1:
        shown = [{key: value for key, value in row.items() if not isinstance(value, list)} for row in rows]
        report("Top-1, in simulation", [*shown, mean_drops(rows, options.kinds.split(","))], options.json)


if __name__ == "__main__":
    main()
