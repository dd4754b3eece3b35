"""Do the fused quantizers give the bits of the expressions they stand for?

    python benchmarks/fused_bits.py --device cuda                          before relying on QUAVER_FUSED=1
    python benchmarks/fused_bits.py --size 6 --batch 2                     Triton's interpreter, on the CPU

Every range rule with every dtype, layout and grid, by itself, behind a ReLU and behind a ReLU6, in training: what comes out,
thresholds, state and gradients. Then some
steps of a whole model, of which every parameter and buffer is compared. Exits with 1 where one bit differs. ``--every 17``
takes one case in 17, ``--first 3`` beginning with the fourth: so several processes share them.
"""

import copy
import itertools
import os
import sys
from collections.abc import Iterator

if "cuda" not in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import quaver
from measure import arguments, report
from quaver.models import build as build_model
from quaver.quantizers import Quantizer, build
from quaver.quantizers.fused import SWITCH
from quaver.quantizers.in_blocks import RELU, RELU6, Clamp

ACTIVATIONS = ["abs_max", "moving_average_abs_max", "range_abs_max", "learned_step"]
WEIGHTS = ["channel_wise_abs_max", "channel_wise_learned_step"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def quantizers() -> Iterator[tuple[str, Quantizer]]:
    """Every rule on every grid, and its name in the table."""
    for rule, signed, narrow, bits, tensors in itertools.product(
        ACTIVATIONS, (True, False), (True, False), (2, 4, 8), (1, 3)
    ):
        for pass_through, clip in ((False, None), (True, None), (False, "PACT")):
            options = {"signed": signed, "narrow": narrow, "tensors": tensors, "pass_through": pass_through}
            yield rule, build(rule, bits=bits, preprocess=clip, **options)
    for rule, bits, pairs, axis in itertools.product(WEIGHTS, (2, 4, 8), (True, False), (0, 1)):
        kind = "learned_step" if "learned" in rule else rule
        yield rule, build(kind, bits=bits, axis=axis, pairs=1 - axis if pairs else None)


CLAMPS = {None: nn.Identity(), RELU: nn.ReLU(), RELU6: nn.ReLU6()}


def outcome(quantizer: Quantizer, tensors: list[Tensor], fused: bool, clamp: Clamp | None) -> list[Tensor]:
    """All that a few steps leave; with a clamp in front, as an op of its own or as the kernels take it in."""
    os.environ[SWITCH] = str(int(fused))
    left = []
    for step, x in enumerate(tensors):
        leaf = x.clone().requires_grad_()
        slot = step % quantizer.tensors
        behind = quantizer.in_one(leaf, clamp, slot) if fused and clamp else None
        result = quantizer(CLAMPS[clamp](leaf), slot) if behind is None else behind
        result.backward(torch.linspace(-1, 1, x.numel(), device=x.device).to(x.dtype).view(x.shape))
        left += [
            result.detach(),
            leaf.grad,
            quantizer.threshold.detach(),
            *(buffer.clone() for buffer in quantizer.buffers()),
        ]
        left += [value.grad.clone() for value in quantizer.parameters() if value.grad is not None]
    return left


def differing(actual: list[Tensor], expected: list[Tensor]) -> int:
    """How many values are not equal; NaN is NaN."""
    pairs = zip(actual, expected, strict=True)
    return sum(int(((one != other) & ~(one.isnan() & other.isnan())).sum()) for one, other in pairs)


def tensors(dtype: torch.dtype, layout: torch.memory_format, options: object) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = (1.0, 0.3, 2.0, 0.01)
    shape = (options.batch, 2 * options.batch + 1, options.size, options.size)
    return [(torch.randn(shape, device=options.device) * size).to(dtype).to(memory_format=layout) for size in sizes]


def trained(model: nn.Module, options: object, fused: bool) -> list[Tensor]:
    """What is in a model after some steps."""
    os.environ[SWITCH] = str(int(fused))
    torch.manual_seed(0)
    images = torch.randn(options.batch, 3, 32, 32, device=options.device)
    labels = torch.arange(options.batch, device=options.device) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(options.steps):
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [*model.state_dict().values(), loss.detach()]


def main() -> None:
    options = arguments(__doc__, device="cpu", batch=8, size=56, steps=3, model="MobileNetV1", every=1, first=0)
    torch.backends.cudnn.deterministic = True
    np.seterr(all="ignore")
    counts: dict[str, list[int]] = {}
    clamps = itertools.cycle(CLAMPS)
    cases = itertools.product(quantizers(), DTYPES, LAYOUTS.items())
    for (rule, quantizer), dtype, (_, layout) in itertools.islice(cases, options.first, None, options.every):
        quantizer = quantizer.to(options.device)
        given = tensors(dtype, layout, options)
        clamp = next(clamps) if rule in ACTIVATIONS else None
        expected = outcome(copy.deepcopy(quantizer), given, fused=False, clamp=clamp)
        wrong = differing(outcome(copy.deepcopy(quantizer), given, fused=True, clamp=clamp), expected)
        row = counts.setdefault(rule, [0, 0, 0])
        counts[rule] = [row[0] + 1, row[1] + sum(map(Tensor.numel, expected)), row[2] + wrong]
    torch.manual_seed(0)
    net = build_model(options.model, num_classes=10, image_size=32, scale=0.25).to(options.device)
    program = quaver.quant_aware(net, example_inputs=(torch.randn(2, 3, 32, 32, device=options.device),)).train()
    expected = trained(copy.deepcopy(program), options, fused=False)
    wrong = differing(trained(copy.deepcopy(program), options, fused=True), expected)
    counts[f"{options.model}, {options.steps} steps"] = [1, sum(map(Tensor.numel, expected)), wrong]
    rows = [{"rule": rule, "cases": row[0], "values": row[1], "differ": row[2]} for rule, row in counts.items()]
    report(f"Fused quantizers against expressions, {options.device}", rows, options.json)
    sys.exit(any(row[2] for row in counts.values()))


if __name__ == "__main__":
    main()
