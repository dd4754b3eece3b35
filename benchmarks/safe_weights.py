"""How can weights be kept from overflowing 16 bits? Ways of doing so, on ImageNet weights that nobody trained for it.

    python benchmarks/safe_weights.py --data-dir DIR --device cuda

Only weights are rounded, the rest is float: EfficientNet-Lite on photographs, as in `pretrained.py`. For each way: the noise
of the weights (mean over the filters), the logits' noise against the float model, top-1 and agreement on images that gave
no statistics. `docs/design.md` says which way Quaver takes, and why. Depthwise filters never overflow: full range.
"""

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from measure import Rows, arguments, report
from pretrained import SIZES, network, outputs_of, photographs
from quaver.quantizers.saturation import LARGEST_SUM, largest_pair, without_overflow

SIX, MANY = [1 + step / 5 for step in range(6)], [1 + step / 20 for step in range(21)]


def along(values: Tensor, weight: Tensor) -> Tensor:
    return values.view(-1, *[1] * (weight.dim() - 1))


def step_of(weight: Tensor) -> Tensor:
    return weight.abs().flatten(1).amax(1).clamp_min(1e-30) / 127


def rounded(weight: Tensor, factor: Tensor | float = 1.0, *, cut: bool = True) -> Tensor:
    """With a step ``factor`` times that of the largest weight; pairs that are too large are cut, or left."""
    step = along(step_of(weight) * factor, weight)
    integers = (weight / step).round().clamp(-127, 127)
    return (without_overflow(integers, 1) if cut else integers) * step


def uncut(weight: Tensor) -> Tensor:
    """The smallest factor with which nothing is cut."""
    return (largest_pair(weight, 1, by_filter=True) / (LARGEST_SUM * step_of(weight))).clamp_min(1)


def searched(weight: Tensor, squares: Tensor, factors: list[float], *, weighed: bool = False) -> Tensor:
    """The factor with the least squared error, weighed by the mean squares of the inputs or not."""
    weights = squares.view(1, -1, *[1] * (weight.dim() - 2)) if weighed else 1.0
    errors = [((rounded(weight, factor) - weight).square() * weights).flatten(1).sum(1) for factor in factors]
    return torch.tensor(factors, device=weight.device)[torch.stack(errors).argmin(0)]


def paired_anew(weight: Tensor) -> Tensor:
    """`uncut` with input channels in another order: the hardest first, each beside the one it meets with least excess."""
    steps = (weight / along(step_of(weight), weight)).transpose(0, 1).flatten(1)
    excess = torch.stack([(one + steps).abs().sub(LARGEST_SUM).relu().square().sum(1) for one in steps])
    excess.fill_diagonal_(0)
    order: list[int] = []
    left = set(range(len(excess)))
    for channel in excess.sum(1).argsort(descending=True).tolist():
        if channel in left:
            left.remove(channel)
            order.append(channel)
            if left:
                others = torch.tensor(sorted(left), device=excess.device)
                order.append(int(others[excess[channel][others].argmin()]))
                left.remove(order[-1])
    moved = weight[:, order]
    return rounded(moved, uncut(moved))[:, torch.tensor(order).argsort()]


Way = Callable[[Tensor, Tensor], Tensor]
WAYS: dict[str, Way] = {
    "full range (not safe)": lambda weight, _: rounded(weight, cut=False),
    "cut": lambda weight, _: rounded(weight),
    "7 bits": lambda weight, _: rounded(weight, 127 / 63, cut=False),
    "6 steps, cut": lambda weight, squares: rounded(weight, searched(weight, squares, SIX)),
    "21 steps, cut": lambda weight, squares: rounded(weight, searched(weight, squares, MANY)),
    "21 steps by inputs, cut": lambda weight, squares: rounded(weight, searched(weight, squares, MANY, weighed=True)),
    "no cut": lambda weight, _: rounded(weight, uncut(weight)),
    "no cut, paired anew": lambda weight, _: paired_anew(weight),
}
WITH_BIAS = ("full range (not safe)", "cut", "no cut")


def layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]


def statistics_of(model: nn.Module, images: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and mean square of each input channel of each layer."""
    found: dict[str, tuple[Tensor, Tensor]] = {}

    def look(name: str, _: nn.Module, given: tuple[Tensor, ...], __: Tensor) -> None:
        axes = [axis for axis in range(given[0].dim()) if axis != 1]
        found[name] = given[0].mean(axes), given[0].square().mean(axes)

    hooks = [layer.register_forward_hook(partial(look, name)) for name, layer in layers(model)]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return found


def made(model: nn.Module, way: Way, seen: dict[str, tuple[Tensor, Tensor]], *, bias: bool) -> tuple[nn.Module, float]:
    """The model with rounded weights, and their noise in decibels; with ``bias``, what errors add on average goes."""
    twin, noise = copy.deepcopy(model), []
    for name, layer in layers(twin):
        weight, (means, squares) = layer.weight.data, seen[name]
        depthwise = getattr(layer, "groups", 1) > 1
        layer.weight.data = rounded(weight, cut=False) if depthwise else way(weight, squares)
        errors = layer.weight.data - weight
        signal, lost = (value.square().flatten(1).sum(1) for value in (weight, errors))
        noise.append(10 * torch.log10(signal / lost)[(signal > 0) & (lost > 0)])
        if bias:
            sums = errors.flatten(2).sum(2) if errors.dim() > 2 else errors
            shift = -(sums[:, 0] * means if depthwise else sums @ means)
            layer.bias = nn.Parameter(shift if layer.bias is None else layer.bias.data + shift)
    return twin, float(torch.cat(noise).mean())


def main() -> None:
    options = arguments(__doc__, data_dir="", models="lite0,lite2", calibrate=100, device="cpu")
    rows: Rows = []
    for name in options.models.split(","):
        images, classes = photographs(Path(options.data_dir), SIZES[name])
        images, model = images.to(options.device), network(name).to(options.device)
        seen, unseen = statistics_of(model, images[: options.calibrate]), images[options.calibrate :]
        wanted, classes = outputs_of(model, unseen), classes[options.calibrate :]
        for way, bias in [(way, bias) for way in WAYS for bias in (False, True) if not bias or way in WITH_BIAS]:
            twin, noise = made(model, WAYS[way], seen, bias=bias)
            got = outputs_of(twin, unseen)
            rows.append(
                {
                    "model": name,
                    "way": way + (", bias" if bias else ""),
                    "weights dB": noise,
                    "logits dB": 10 * math.log10(float(wanted.square().sum() / (got - wanted).square().sum())),
                    "top1 %": 100 * float((got.argmax(1) == classes).float().mean()),
                    "as float %": 100 * float((got.argmax(1) == wanted.argmax(1)).float().mean()),
                }
            )
            print(rows[-1], flush=True)
    report("Weights rounded only", rows, options.json)


if __name__ == "__main__":
    main()
