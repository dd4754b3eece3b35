"""Asymmetric ranges: a tensor that hardly goes below zero (SiLU, GELU, hard-swish) is given nearly all integers above it."""

import math

from quaver.calibration.activation_ranges import CANDIDATES, ObservedTensor, clipping_of
from quaver.graph.nodes import facts, is_fake_quant, quantizer_of
from quaver.grid import asymmetric_grid
from quaver.program import EVAL, Program
from quaver.quantizers import CustomQuantizer
from quaver.quantizers.quantizer import ACTIVATIONS

CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
BETTER = 0.7
"""Of the symmetric grid's noise: what another must stay below."""


def skewed(program: Program, title: str, tensors: list[ObservedTensor], threshold: float) -> float:
    """Give a quantizer an asymmetric grid where that makes less noise; the threshold that it is to have."""
    if len(tensors) != 1 or not _can_be(program, title, tensors[0]):
        return threshold
    (tensor,) = tensors
    least, best = BETTER * tensor.histogram.noise(threshold, ACTIVATIONS, clipping_of(ACTIVATIONS)), None
    for tried in tensor.largest * CANDIDATES:
        below = -tensor.smallest
        zero_point = max(1, math.ceil(255 * below / (tried + below)))
        if zero_point > ACTIVATIONS.high:
            continue
        grid = asymmetric_grid(zero_point)
        noise = tensor.histogram.noise(tried, grid, clipping_of(grid))
        if noise < least:
            least, best = noise, (grid, float(tried))
    if best is None:
        return threshold
    program.quantizer(title).grid = best[0]
    return best[1]


def _can_be(program: Program, title: str, tensor: ObservedTensor) -> bool:
    """Whether a tensor is signed, reaches further up than down, and is rounded for convolutions alone; no sum, no input."""
    quantizer, node = program.quantizer(title), tensor.site.node
    if isinstance(quantizer, CustomQuantizer) or quantizer.preprocess is not None or quantizer.grid != ACTIVATIONS:
        return False
    roundings = [other for other in program.graphs[EVAL].nodes if is_fake_quant(other) and quantizer_of(other) == title]
    if roundings != [node] or not -tensor.smallest < tensor.largest or tensor.smallest >= 0:
        return False
    source = node.args[0]
    is_computed = source.op == "call_function" and facts(source).type != "elementwise_add"  # type: ignore[union-attr]
    return is_computed and all(facts(reader).type in CONVOLUTIONS for reader in node.users)
