"""4-bit weights and activations by learned steps (LSQ): ResNet-20 on CIFAR-10, first and last layer at 8 bits.

    python benchmarks/low_bits.py --data-dir DIR --float OUT/resnet20/float.safetensors --out OUT --jobs 4
    python benchmarks/low_bits.py --data-dir DIR --out OUT                       without weights: trains them first

DIR holds cifar-10-batches-bin; the float weights are those that `accuracy.py` trains. Convolutions and the last layer are
quantized, sums stay float, as in the paper (Esser et al., 2020), which on ImageNet finds 4 bits within about a point of
float: ResNet-18 70.5 float, 71.1 at W4A4; ResNet-50 76.9 and 76.7.
"""

import json
import subprocess
import sys
import time
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import quaver
from cifar import Images, accuracy, test_set, train, training_set
from measure import arguments, report
from quaver.models import build

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


def float_model(options: Namespace, data: Images) -> nn.Module:
    torch.manual_seed(options.seed)
    model = build("resnet20", num_classes=10, image_size=32).to(options.device)
    file = Path(options.float or Path(options.out) / "float.safetensors")
    if file.exists():
        model.load_state_dict(load_file(file, device=options.device))
    else:
        train(model, data, options.epochs, 0.2)
        save_file({key: value.cpu().contiguous() for key, value in model.state_dict().items()}, file)
    return model


def run(bits: str, options: Namespace, data: Images, test: Images) -> None:
    start = time.time()
    qat = quaver.quant_aware(float_model(options, data), config(bits), example_inputs=(data[0][:2],))
    own = [{"params": list(qat.quantizer_parameters()), "lr": LR / 5, "weight_decay": 0.0}]
    log: list[float] = []
    train(qat, data, options.qat_epochs, LR, own=own, on_epoch=lambda epoch, loss, _: log.append(round(loss, 4)))
    frozen, int8 = quaver.convert(qat.eval(), save_int8=True)
    figures = {"bits": bits, "top1": accuracy(frozen, test), "losses": log, "seconds": round(time.time() - start)}
    quaver.save(int8.to("cpu"), Path(options.out) / bits)
    (Path(options.out) / f"{bits}.json").write_text(json.dumps(figures) + "\n")
    print(json.dumps(figures), flush=True)


def main() -> None:
    options = arguments(
        __doc__,
        data_dir="",
        out="",
        float="",
        device="cuda" if torch.cuda.is_available() else "cpu",
        bits=",".join(BITS),
        epochs=40,
        qat_epochs=20,
        images=50000,
        test_images=10000,
        seed=0,
        jobs=1,
    )
    Path(options.out).mkdir(parents=True, exist_ok=True)
    data = tuple(tensor[: options.images].to(options.device) for tensor in training_set(Path(options.data_dir)))
    test = tuple(tensor[: options.test_images].to(options.device) for tensor in test_set(Path(options.data_dir)))
    wanted = options.bits.split(",")
    if len(wanted) == 1:
        run(wanted[0], options, data, test)
        return
    float_top1 = accuracy(float_model(options, data), test)
    if options.jobs > 1:
        processes = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--bits", bits]) for bits in wanted]
        assert not any(process.wait() for process in processes)
    else:
        for bits in wanted:
            run(bits, options, data, test)
    figures = [json.loads((Path(options.out) / f"{bits}.json").read_text()) for bits in wanted]
    rows = [{"bits": "float", "top1": float_top1, "drop": 0.0}]
    rows += [{"bits": one["bits"], "top1": one["top1"], "drop": float_top1 - one["top1"]} for one in figures]
    report("Learned steps, ResNet-20, CIFAR-10 top-1", rows, options.json)


if __name__ == "__main__":
    main()
