"""Ranges of activations: thresholds with which a tensor, or what its readers make of it, is nearest to the float one."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, fx

from quaver.analysis.histogram import Histogram
from quaver.analysis.initialise import start, start_clip
from quaver.analysis.interpreter import WatchingInterpreter
from quaver.analysis.sites import Site, activations
from quaver.analysis.tensor_statistics import Accumulator
from quaver.calibration.calibrated_layer import reads_weight
from quaver.calibration.sweep import Both, Sweep
from quaver.graph.nodes import facts, quantizer_of
from quaver.grid import Grid
from quaver.program import Program

FACTORS = (0.6, 0.75, 0.9, 1.0, 1.15, 1.35, 1.6)
"""Times the threshold with the least error of the tensor itself: what is tried for the least error of its readers."""

CANDIDATES = np.geomspace(1.0, 0.05, 60)
"""Shares of the largest value that are tried for the least error of a tensor."""


@dataclass(frozen=True)
class ObservedTensor:
    """A tensor over all images: how its values are spread, the largest, without its sign, and the smallest."""

    site: Site
    histogram: Histogram
    largest: float
    smallest: float


def look(
    program: Program, batches: Sequence[list[Tensor]], done: Callable[[int], None]
) -> tuple[dict[str, list[ObservedTensor]], int]:
    """The tensors of each quantizer of activations in the float network; and how many values of an image the largest has."""
    sites = activations(program)
    accumulator = Accumulator(sites, moving_rate=0.9)
    sizes = [1]

    def see(site: Site, x: Tensor, unit: Any) -> None:
        accumulator.look(site, x, unit)
        sizes.append(x.numel() // max(len(x), 1))

    network = WatchingInterpreter(program, sites, see, rounding=False)
    for count, batch in enumerate(batches):
        network.outputs(batch)
        accumulator.end_batch()
        done(count + 1)
    seen_by_quantizer: dict[str, list[ObservedTensor]] = defaultdict(list)
    for site in sites:
        tally = accumulator.tallies[site.name]
        if tally.state:
            histogram = tally.counts.done(tally.smallest, tally.largest)
            largest = max(tally.largest, -tally.smallest)
            seen_by_quantizer[site.quantizer].append(ObservedTensor(site, histogram, largest, tally.smallest))
    return dict(seen_by_quantizer), max(sizes)


def largest_of(tensors: list[ObservedTensor]) -> float:
    """The threshold with which nothing is cut."""
    return max(tensor.largest for tensor in tensors)


def nearest_tensor(tensors: list[ObservedTensor]) -> float:
    """The threshold with the least squared error over all tensors that share a quantizer."""
    largest = largest_of(tensors)
    if largest == 0:
        return 0.0
    thresholds = largest * CANDIDATES
    noise = [sum(_noise(tensor, threshold) for tensor in tensors) for threshold in thresholds]
    return float(thresholds[int(np.argmin(noise))])


def _noise(tensor: ObservedTensor, threshold: float) -> float:
    """The squared error, in which what is clipped counts 4 times at 4 bits, 64 times at 8.

    Errors of rounding cancel out in the sums of the next layer, those of clipping all point one way; and the more bits, the
    less there is to gain by clipping. With these factors the network errs less than with others, and than with none.
    """
    grid = grid_of(tensor)
    return tensor.histogram.noise(threshold, grid, clipping_of(grid))


def clipping_of(grid: Grid) -> float:
    """How many times an error of clipping counts."""
    return 2.0 ** (grid.bits - 2)


def grid_of(tensor: ObservedTensor) -> Grid:
    """The grid that a tensor is rounded to, or that an engine would round it to."""
    if tensor.site.rounded:
        return tensor.site.grid
    return Grid(8, signed=bool((tensor.histogram.low < 0).any()), narrow=False)


def give(program: Program, tensors: list[ObservedTensor], threshold: float) -> None:
    """Start a quantizer with this threshold; a tensor that does not come so far keeps to its own."""
    quantizer = program.quantizer(tensors[0].site.quantizer)
    start_clip(quantizer, threshold)
    for tensor in tensors:
        start(quantizer, tensor.site.slot, min(threshold, tensor.largest))


def nearest_readers(sweep: Sweep, node: fx.Node, tensor: ObservedTensor, threshold: float) -> float:
    """The threshold with the least error of the layers that read a tensor, relative to what they give; near ``threshold``.

    What is no layer (an addition, a pool) counts by the tensor's own error. The first batch decides.
    """
    quantizer = sweep.program.quantizer(quantizer_of(node))
    source = sweep.values[node.args[0]]  # type: ignore[index]
    floating, rounded = source.floating[0], source.rounded[0]
    layers = [reader for reader in node.users if reads_weight(reader)]
    axes = [facts(reader).weight.output_axis for reader in layers] + [1]
    before = sweep.values.get(node)

    def outputs(x: Tensor) -> list[Tensor]:
        sweep.values[node] = Both([x], [x])
        return [sweep.compute(reader, 0, floating=True) for reader in layers] + [x] * (len(layers) < len(node.users))

    wanted = outputs(floating)
    best = (np.inf, threshold)
    for tried in sorted({min(factor * threshold, tensor.largest) for factor in FACTORS}):
        start(quantizer, tensor.site.slot, tried)
        got = outputs(quantizer(rounded))
        noise = sum(map(_relative_error, got, wanted, axes))
        best = min(best, (noise, tried))
    sweep.values[node] = before  # type: ignore[assignment]
    return best[1]


def _relative_error(got: Tensor, wanted: Tensor, axis: int) -> float:
    """The error's variance over that of the channel, mean over the channels: batch norm makes them alike, and biases will
    take off a mean.
    """
    others = [dim for dim in range(wanted.dim()) if dim != axis % wanted.dim()]
    signal, noise = (value.var(others, correction=0) for value in (wanted, got - wanted))
    alive = signal > 0
    return float((noise[alive] / signal[alive]).mean()) if bool(alive.any()) else 0.0
