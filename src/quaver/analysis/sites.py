"""Where the tensors of a program are that an analysis looks at: what quantizers round, and what they only observe."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from quaver.graph.nodes import (
    is_dequantize,
    is_fake_quant,
    is_op,
    is_parameter,
    is_quantize,
    op_of,
    ops_by_name,
    quantizer_of,
    stored_weight,
)
from quaver.graph.patterns import fused_output
from quaver.grid import BYTE, Grid, asymmetric_grid
from quaver.program import EVAL, Program
from quaver.program.quantized_tensors import numbered, quantized_tensors
from quaver.program.views import read
from quaver.quantizers import CustomQuantizer, Observer
from quaver.quantizers.arithmetic import quantize


@dataclass(frozen=True)
class Site:
    """An activation: the node that rounds it (or gives it, where it is only observed), and with what range.

    ``threshold`` is None where the quantizer has seen no data, or keeps its range to itself.
    """

    name: str
    quantizer: str
    slot: int
    rounded: bool
    node: fx.Node
    grid: Grid
    threshold: float | None


@dataclass(frozen=True)
class WeightSite:
    """A weight: its values, what rounding makes of them (None where a frozen program has only the integers), its ranges.

    ``clipped`` is the share of values that saturate, ``bounded`` that of integers kept from overflowing in pairs.
    """

    name: str
    bits: int
    values: Tensor
    rounded: Tensor | None
    thresholds: Tensor
    clipped: float = 0.0
    bounded: float = 0.0


def activations(program: Program) -> list[Site]:
    """Every activation that is rounded or observed, in the order of the graph."""
    sites = list(_rounded(program)) if program.placements.quantizers else list(_frozen(program))
    taken = {site.node for site in sites}
    return sites + [site for site in _observed(program) if site.node not in taken]


def _rounded(program: Program) -> Iterator[Site]:
    for node in program.graphs[EVAL].nodes:
        if not is_fake_quant(node) or is_parameter(node.args[0]):
            continue
        title, slot = quantizer_of(node), node.args[1]
        if slot is None:  # moved, not computed: its source was looked at
            continue
        source: Any = node.args[0]
        own = f"{op_of(source).name}.output" if slot and is_op(source) else title
        quantizer = program.quantizer(title)
        yield Site(own, title, slot, True, node, quantizer.grid, _threshold(program, title))


def _observed(program: Program) -> Iterator[Site]:
    """The outputs that only observers look at; they stand in the training graph, their tensors in both."""
    ops = ops_by_name(program.graphs[EVAL])
    for name, roles in program.placements.roles.items():
        title = roles.get("output")
        if title is not None and name in ops and isinstance(program.quantizer(title), Observer):
            node = fused_output(ops[name])
            yield Site(title, title, 0, False, node, Grid(8, narrow=False), _threshold(program, title))


def _frozen(program: Program) -> Iterator[Site]:
    taken: set[str] = set()
    for tensor in quantized_tensors(program):
        if tensor.moved_from is None:
            name = numbered(f"{tensor.maker_name}.output" if is_op(tensor.maker) else tensor.maker_name, taken)
            taken.add(name)
            bits = tensor.high.bit_length() + (tensor.low < 0)
            grid = Grid(bits, tensor.low < 0, narrow=False) if bits <= BYTE else asymmetric_grid(-tensor.low)
            yield Site(name, name, 0, True, tensor.dequantize, grid, tensor.step * tensor.high)


def _threshold(program: Program, title: str) -> float | None:
    quantizer = program.quantizer(title)
    seen = quantizer.seen
    if isinstance(quantizer, CustomQuantizer) or (seen is not None and not bool(seen)):
        return None
    threshold = float(quantizer.threshold)
    return threshold if threshold > 0 else None


def weights(program: Program) -> Iterator[WeightSite]:
    """Every quantized weight."""
    for title in program.placements.weights:
        quantizer, values = program.quantizer(title), program.weight(title).detach()
        with torch.no_grad():
            integers, step = quantizer.integers(values)
            plain = quantize(values.float(), quantizer.per_channel(step, values), quantizer.grid)
            bounds_sums = quantizer.saturation_axis is not None and not isinstance(quantizer, CustomQuantizer)
            bounded = float((plain != integers).float().mean()) if bounds_sums else 0.0
            rounded = integers * quantizer.per_channel(step, values)
            thresholds = quantizer.range_for(values, None)[0].detach()
            reach = (1 + 0.5 / quantizer.grid.high) * quantizer.per_channel(thresholds, values)
            clipped = float((values.abs() > reach).float().mean())
        yield WeightSite(title, quantizer.grid.bits, values, rounded, thresholds.flatten(), clipped, bounded)
    if not program.placements.weights:
        yield from _frozen_weights(program)


def _frozen_weights(program: Program) -> Iterator[WeightSite]:
    taken: set[str] = set()
    for node in program.graphs[EVAL].nodes:
        if is_dequantize(node) and not is_quantize(node.args[0]) and (name := str(stored_weight(node).target)) not in taken:
            taken.add(name)
            integers = read(program, name).detach().float()
            scale = node.args[1]
            if isinstance(scale, fx.Node):
                shape = [1] * integers.dim()
                shape[node.args[3]] = -1
                scale = read(program, str(scale.target)).detach().view(shape)
            high = node.args[-2]
            values = integers * scale
            yield WeightSite(name, int(high).bit_length() + 1, values, None, torch.as_tensor(scale * high).flatten())
