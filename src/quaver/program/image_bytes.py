"""The bytes of images on the grid of a program's input, as a product and a sum that nothing can round otherwise."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quaver.graph.nodes import facts_in
from quaver.image_input import BYTES, ImageInput
from quaver.program.program import EVAL, Program
from quaver.program.quantized_tensors import QuantizedTensor, quantized_tensors
from quaver.program.views import Executable

LAST_BITS = 2.0**-19
"""Of the numbers in it, 32 times what float32 rounds off: in whatever order an engine computes, it stays below that."""

_TRIED = np.linspace(1 - 1 / BYTES, 1 + 1 / BYTES, 1025)
"""What factors may be multiplied by: with more, the last byte would be another."""


@dataclass(frozen=True)
class ByteAffine:
    """``byte · factor + shift``, channel by channel, for a tensor that is rounded next."""

    factor: NDArray[np.float32]
    shift: NDArray[np.float32]

    def is_safe(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
        """Whether every byte stays between these ends, however the last bits of product and sum are rounded."""
        products, shift = np.outer(self.factor, np.arange(BYTES)), self.shift[:, None].astype(np.float64)
        off = LAST_BITS * (np.abs(products).max(1, keepdims=True) + np.abs(shift))
        return bool(((products + shift - low >= off) & (high - products - shift >= off)).all())


def affine_for(program: Program, image: ImageInput) -> ByteAffine | None:
    """The affine map after which each of the 256 bytes is rounded to the very integer that it has by its definition.

    Factor and shift are moved to where no byte comes near a tie: then it does not matter in which order an engine multiplies
    and adds, nor what it fuses. None where bytes lie on ties in any case, or the input is not rounded first.
    """
    tensors = _roundings(program)
    if not tensors:
        return None
    bounds = [_bounds(tensor, integers_of(program, tensor, image.table())) for tensor in tensors]
    low, high = np.max([bound[0] for bound in bounds], axis=0), np.min([bound[1] for bound in bounds], axis=0)
    mean, std = (np.array(values, np.float64)[:, None] for values in (image.mean, image.std))
    factors = _TRIED / (image.unit * std)
    # for each factor, the room that all bytes together leave to the shift
    products = factors[:, :, None] * np.arange(BYTES)
    least, most = (low[:, None] - products).max(2), (high[:, None] - products).min(2)
    best = np.argmax(most - least, axis=1)[:, None]
    factor, least, most = (np.take_along_axis(values, best, 1) for values in (factors, least, most))
    shift = np.where(np.isfinite(least + most), (least + most) / 2, -mean / std)
    affine = ByteAffine(factor[:, 0].astype(np.float32), shift[:, 0].astype(np.float32))
    return affine if affine.is_safe(low, high) else None


def integers_of(program: Program, tensor: QuantizedTensor, values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The integers (without zero point) onto which a program rounds these values of an input, in its engine's arithmetic."""
    lowering = program.engine.lowering()
    graph = lowering.run(program.graphs[EVAL])
    graph.output_node().args = (lowering.integers[tensor.dequantize][0],)
    graph.eliminate_dead_code()
    side = int(BYTES**0.5)
    given = torch.from_numpy(values).reshape(1, -1, side, side)
    with torch.no_grad():
        whole = Executable(program, graph)(given)
    return whole.reshape(values.shape).double().numpy()  # type: ignore[no-any-return]


def _roundings(program: Program) -> list[QuantizedTensor]:
    """The tensors that the input is rounded to, where it is and nothing else reads it."""
    graph = program.graphs[EVAL]
    facts = facts_in(graph)
    (given,) = (node for node in graph.nodes if node.op == "placeholder")
    readers: list[Any] = [node for node in given.users if facts[node].kind != "shape"]
    tensors = [tensor for tensor in quantized_tensors(program) if tensor.quantize in readers]
    return tensors if len(tensors) == len(readers) else []


def _bounds(tensor: QuantizedTensor, integers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between what a value must lie to be rounded to each of these integers; the last ones of a grid have no end."""
    low = np.where(integers > tensor.low, (integers - 0.5) * tensor.step, -np.inf)
    high = np.where(integers < tensor.high, (integers + 0.5) * tensor.step, np.inf)
    return low, high
