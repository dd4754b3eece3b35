"""4-bit weights and activations by learned steps (LSQ): ResNet-20 on CIFAR-10, first and last layer at 8 bits.

    python benchmarks/low_bits.py --data-dir DIR --float OUT/resnet20/float.safetensors --out OUT --jobs 4
    python benchmarks/low_bits.py --data-dir DIR --out OUT                       without weights: trains them first

DIR holds cifar-10-batches-bin; the float weights are those that `accuracy.py` trains. Convolutions and the last layer are
quantized, sums stay float, as in the paper (Esser et al., 2020), which on ImageNet finds 4 bits within about a point of
float: ResNet-18 70.5 float, 71.1 at W4A4; ResNet-50 76.9 and 76.7.
"""

import time
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import quaver
from cifar import OPTIONS, Images, accuracy, both_sets, each_variant, leave, train, trained_model
from measure import arguments, report

warnings.filterwarnings("ignore", module="torch")

LR = 0.05
BITS = ("W8A8", "W4A8", "W4A4", "W3A3")


def config(bits: str) -> dict[str, Any]:
    """``W4A8``: 4-bit weights, 8-bit activations; the ends at 8 bits."""
    weights, activations = (int(part) for part in bits[1:].split("A"))
    return {
        "weight_quantize_type": "learned_step",
        "activation_quantize_type": "learned_step",
        "weight_bits": weights,
        "activation_bits": activations,
        "layer_bits": {"stem": 8, "classifier": 8},
        "quantize_op_types": ["conv2d", "mul"],
    }


def run(bits: str, options: Namespace, data: Images, test: Images) -> None:
    start = time.time()
    qat = quaver.quant_aware(trained_model("resnet20", options, data), config(bits), example_inputs=(data[0][:2],))
    own = [{"params": list(qat.quantizer_parameters()), "lr": LR / 5, "weight_decay": 0.0}]
    log: list[float] = []
    train(
        qat,
        data,
        options.qat_epochs,
        LR,
        own=own,
        bf16=options.bf16,
        on_epoch=lambda epoch, loss, _: log.append(round(loss, 4)),
    )
    frozen, int8 = quaver.convert(qat.eval(), save_int8=True)
    figures = {"bits": bits, "top1": accuracy(frozen, test), "losses": log, "seconds": round(time.time() - start)}
    quaver.save(int8.to("cpu"), Path(options.out) / bits)
    leave(bits, figures, options)


def main() -> None:
    options = arguments(
        __doc__,
        **OPTIONS,
        float="",
        bits=",".join(BITS),
        epochs=40,
        qat_epochs=20,
    )
    Path(options.out).mkdir(parents=True, exist_ok=True)
    data, test = both_sets(options)
    wanted = options.bits.split(",")
    if len(wanted) == 1:
        run(wanted[0], options, data, test)
        return
    float_top1 = accuracy(trained_model("resnet20", options, data), test)
    figures = each_variant("--bits", wanted, options, lambda bits: run(bits, options, data, test))
    rows = [{"bits": "float", "top1": float_top1, "drop": 0.0}]
    rows += [{"bits": one["bits"], "top1": one["top1"], "drop": float_top1 - one["top1"]} for one in figures]
    report("Learned steps, ResNet-20, CIFAR-10 top-1", rows, options.json)


if __name__ == "__main__":
    main()
