"""Outliers: one channel in sixty-four is a hundred times as large as the others. Plain 8-bit QAT, PACT and LSQ on CIFAR-10.

    python benchmarks/outliers.py --data-dir DIR --float OUT/mobilenet_v1/float.safetensors --out OUT --jobs 3
    python benchmarks/outliers.py --data-dir DIR --out OUT                      without weights: trains them first
    python benchmarks/outliers.py --data-dir DIR --out OUT --only deploy        the engine's part, on another machine

DIR holds cifar-10-batches-bin; the float weights are those that `accuracy.py` trains. A MobileNetV1 is rescaled channel by
channel: what a ReLU gives is multiplied, and what the next layer makes of it divided, so that the float model computes what
it did. A quantizer has one range for all channels, and the few large ones take nearly all of it. Three ways from there:

plain   range of the largest value, as by default
pact    a learned clip in front of each quantizer, started at the 99th percentile that `quaver.analyze` finds
lsq     learned steps, started at the same

What makes a large channel has gradients as much larger, which SGD turns into steps as large: at the rate that other models
train with (0.01) none of the three is stable for long. AdamW's steps do not depend on the gradients' size. All three learn
from the float model's outputs, too (``--distill``): the large channels, cut off at the start, have to be learned anew.
"""

import copy
import time
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import quaver
from cifar import OPTIONS, Images, accuracy, both_sets, deployed, each_variant, leave, train, trained_model
from measure import arguments, report
from quaver.quantizers import PACT, LearnedStep

warnings.filterwarnings("ignore", module="torch")

# Each way, and the learning rate of its quantizers' parameters over that of the weights: AdamW moves a value by about its
# rate at each step, a clip is some 3 and a step of the grid some 3 / 255.
WAYS = {"plain": 1.0, "pact": 2.0, "lsq": 0.02}


def with_outliers(model: nn.Module, factor: float, per: int) -> nn.Module:
    """One channel in ``per`` scaled up by ``factor`` behind each ReLU, and down again in the layer that reads it.

    For a chain of convolution, batch norm and ReLU, as MobileNetV1 is. Narrower layers stay as they are.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    readers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)][1:]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for norm, reader in zip(norms, readers, strict=True):
            chosen = torch.randperm(norm.num_features, generator=generator)[: norm.num_features // per]
            norm.weight[chosen] *= factor
            norm.bias[chosen] *= factor
            depthwise = isinstance(reader, nn.Conv2d) and reader.groups > 1
            reader.weight[chosen if depthwise else (slice(None), chosen)] /= factor
    return model


def prepared(way: str, model: nn.Module, data: Images, lr: float) -> tuple[quaver.Program, list[dict[str, Any]]]:
    """A program to train, and the parameter group of its quantizers."""
    example = (data[0][:2],)
    if way == "plain":
        return quaver.quant_aware(model, example_inputs=example), []
    analysis = quaver.analyze(model, data[0][:2048].split(256))
    thresholds = {name: max(value, 1e-3) for name, value in analysis.thresholds(by="p99").items()}
    if way == "pact":
        qat = quaver.quant_aware(model, example_inputs=example, act_preprocess_func=PACT(thresholds=thresholds))
        return qat, [{"params": list(qat.quantizer_parameters()), "lr": lr, "weight_decay": 1e-4}]
    learned = {"weight_quantize_type": "channel_wise_learned_step", "activation_quantize_type": "learned_step"}
    qat = quaver.quant_aware(model, learned, example_inputs=example)
    with torch.no_grad():
        for name, quantizer in qat.quantizers():
            if isinstance(quantizer, LearnedStep) and name in thresholds:
                quantizer.step.fill_(thresholds[name] / quantizer.grid.high)
                quantizer.known.fill_(True)
    return qat, [{"params": list(qat.quantizer_parameters()), "lr": lr, "weight_decay": 0.0}]


def run(way: str, options: Namespace, data: Images, test: Images) -> None:
    start = time.time()
    model = with_outliers(trained_model("mobilenet_v1", options, data), options.factor, options.per)
    qat, own = prepared(way, model, data, options.lr * WAYS[way])
    losses: list[str] = []  # as text: NaN is no JSON

    def note(epoch: int, loss: float, seconds: float) -> None:
        losses.append(f"{loss:.4f}")

    teacher = copy.deepcopy(model).eval() if options.distill else None  # the program trains the model's own weights
    learned = {"teacher": teacher, "distill": options.distill}
    train(
        qat,
        data,
        options.qat_epochs,
        options.lr,
        adam=True,
        warm_up=0.05,
        own=own,
        bf16=options.bf16,
        on_epoch=note,
        **learned,
    )
    figures = {"way": way, "int8": accuracy(qat, test), "losses": losses}
    figures |= {"seconds": round(time.time() - start)}
    if all(bool(torch.isfinite(value).all()) for value in qat.parameters()):
        quaver.save(quaver.convert(qat, save_int8=True)[1].to("cpu"), Path(options.out) / way)
    leave(way, figures, options)


def main() -> None:
    options = arguments(
        __doc__,
        **OPTIONS,
        float="",
        ways=",".join(WAYS),
        factor=100.0,
        per=64,
        epochs=20,
        qat_epochs=12,
        lr=0.0005,
        distill=0.7,
        only="qat",
    )
    Path(options.out).mkdir(parents=True, exist_ok=True)
    data, test = both_sets(options)
    ways = options.ways.split(",")
    if options.only == "deploy":
        saved = [way for way in ways if (Path(options.out) / way).is_dir()]
        rows = [{"way": way} | deployed(Path(options.out) / way, test) for way in saved]
        report("Outliers, CIFAR-10 top-1 on OpenVINO", rows, options.json)
        return
    if len(ways) == 1:
        run(ways[0], options, data, test)
        return
    plain = accuracy(trained_model("mobilenet_v1", options, data), test)
    rescaled = accuracy(with_outliers(trained_model("mobilenet_v1", options, data), options.factor, options.per), test)
    figures = each_variant("--ways", ways, options, lambda way: run(way, options, data, test))
    rows = [
        {"way": "float", "top1": plain, "drop": 0.0},
        {"way": "float, rescaled", "top1": rescaled, "drop": plain - rescaled},
    ]
    rows += [{"way": one["way"], "top1": one["int8"], "drop": plain - one["int8"]} for one in figures]
    report("Outliers, CIFAR-10 top-1", rows, options.json)


if __name__ == "__main__":
    main()
