"""Cross-layer equalization: channels that one layer gives small and the next one reads large are made alike.

What a layer gives is multiplied, channel by channel, by powers of two, and the weights that read it are divided by them
(Nagel et al., 2019). Powers of two change no bit of the float network. Between the two layers stands nothing, or what
passes a positive factor on: a ReLU, a pool. A ReLU6 does not: its 6 would have to be another number for each channel.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from quaver.analysis.interpreter import FloatInterpreter
from quaver.calibration.calibrated_layer import CalibratedLayer, layers_of, own_tensor
from quaver.graph.nodes import argument, clamp_bounds, is_fake_quant, packet, quantizer_of
from quaver.program import Program

PASS_FACTORS_ON = frozenset({"leaky_relu", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "dropout"})
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
"""How far the channels' ranges are brought together, 1 being all the way: what is tried."""

FURTHEST = 8
"""Powers of two that a channel is multiplied by at most."""


@dataclass(frozen=True)
class Pair:
    """Two layers, and the tensor that the second one reads of the first."""

    first: CalibratedLayer
    second: CalibratedLayer
    tensor: fx.Node


@torch.no_grad()
def equalize(program: Program, batches: Sequence[list[Tensor]]) -> int:
    """Equalize wherever less noise at the second layer's output is to be expected; gives the number of pairs changed."""
    pairs = list(pairs_of(program))
    channels = _Channels(program, {pair.tensor for pair in pairs})
    for batch in batches:
        channels.outputs(batch)
    changed = 0
    for pair in pairs:
        factors = _best_factors(program, pair, *channels.of(pair.tensor))
        if factors is not None:
            _multiply(program, pair, factors)
            changed += 1
    return changed


def pairs_of(program: Program) -> Iterator[Pair]:
    """Layers of which the second alone reads the first, with nothing between them that a positive factor does not pass."""
    layers = {layer.node: layer for layer in layers_of(program)}
    for second in layers.values():
        node: Any = second.source
        while len(node.users) == 1 and _passes_factors_on(node):
            node = node.args[0]
        behind = node.args[0] if packet(node) == "batch_norm" else node
        first = layers.get(behind)
        if first is None or len(node.users) != 1 or first.norm is not (node if node is not behind else None):
            continue
        if _tensors_to_multiply(program, first) is not None and _fits(first, second):
            yield Pair(first, second, second.source)


def _passes_factors_on(node: fx.Node) -> bool:
    if is_fake_quant(node) or packet(node) in PASS_FACTORS_ON:
        return True
    return clamp_bounds(node) == (0.0, float("inf"))


def _fits(first: CalibratedLayer, second: CalibratedLayer) -> bool:
    """Whether the second layer reads the channels as they are, depthwise or all together."""
    given, taken = first.weight.shape[0], second.weight.shape[1] * second.groups
    return first.is_product and second.is_product and given == taken and second.groups in (1, given)


def _tensors_to_multiply(program: Program, layer: CalibratedLayer) -> list[Tensor] | None:
    """The tensors that a layer's output is proportional to, if they are its own."""
    if layer.norm is not None:
        tensors = [own_tensor(program, layer.norm, name) for name in ("weight", "bias")]
    else:
        biased = argument(layer.node, "bias") is not None
        tensors = [layer.weight] + ([own_tensor(program, layer.node, "bias")] if biased else [])
    return None if any(tensor is None for tensor in tensors) else tensors  # type: ignore[return-value]


def _best_factors(program: Program, pair: Pair, largest: Tensor, squares: Tensor) -> Tensor | None:
    """The factors of the channels with the least noise; None where none is better than what is."""
    weight = pair.second.weight.detach()
    quantizers = [node for node in (pair.tensor, *pair.tensor.all_input_nodes) if is_fake_quant(node)]
    grid = program.quantizer(quantizer_of(quantizers[0])).grid if quantizers else None
    signal = _by_output(pair.second, squares, weight).clamp_min(1e-30)

    def noise(factors: Tensor) -> float:
        """Of rounding the tensor and the weight, relative to the output, mean over the outputs."""
        other = _divided(pair.second, weight, factors)
        integers, scale = pair.second.quantizer.integers(other)
        errors = integers * pair.second.quantizer.per_channel(scale, other) - other
        rounding = _by_output(pair.second, squares * factors.square(), errors)
        if grid is not None:
            step = float((largest * factors).max()) / grid.high
            rounding = rounding + _by_output(pair.second, torch.full_like(squares, step * step / 12), other)
        return float((rounding / signal).mean())

    alive = largest > 0
    if not bool(alive.any()):
        return None
    least, best = 0.9 * noise(torch.ones_like(largest)), None
    for strength in STRENGTHS:
        powers = strength * torch.log2(largest.max() / largest.clamp_min(1e-30))
        factors = torch.exp2(powers.round().clamp(0, FURTHEST)).where(alive, torch.ones_like(largest))
        relative_noise = noise(factors)
        if relative_noise < least:
            least, best = relative_noise, factors
    return best


def _by_output(layer: CalibratedLayer, squares: Tensor, weight: Tensor) -> Tensor:
    """The mean square of each output: of inputs with these mean squares, independent of each other."""
    sums = weight.square().flatten(2).sum(2) if weight.dim() > 2 else weight.square()
    return sums[:, 0] * squares if layer.groups > 1 else sums @ squares


def _divided(layer: CalibratedLayer, weight: Tensor, factors: Tensor) -> Tensor:
    """The weight that undoes the factors of its inputs."""
    axis = 0 if layer.groups > 1 else 1
    return weight / factors.view([-1 if k == axis else 1 for k in range(weight.dim())])


def _multiply(program: Program, pair: Pair, factors: Tensor) -> None:
    for tensor in _tensors_to_multiply(program, pair.first) or ():
        tensor.mul_(factors.view(-1, *[1] * (tensor.dim() - 1)))
    pair.second.weight.copy_(_divided(pair.second, pair.second.weight, factors))


class _Channels(FloatInterpreter):
    """Knows the largest value and the mean square of each channel of some tensors."""

    def __init__(self, program: Program, wanted: set[fx.Node]) -> None:
        super().__init__(program)
        self.wanted = wanted
        self.largest: dict[fx.Node, Tensor] = {}
        self.squares: dict[fx.Node, list[Tensor]] = {}

    def of(self, node: fx.Node) -> tuple[Tensor, Tensor]:
        """Largest value and mean square of each channel."""
        return self.largest[node], torch.stack(self.squares[node]).mean(0)

    def run_node(self, n: fx.Node) -> Any:
        """Compute a node, and look at its channels."""
        result = super().run_node(n)
        if n in self.wanted:
            rows = result.transpose(0, 1).flatten(1)
            largest = rows.abs().amax(1)
            self.largest[n] = torch.maximum(self.largest.get(n, largest), largest)
            self.squares.setdefault(n, []).append(rows.square().mean(1))
        return result
