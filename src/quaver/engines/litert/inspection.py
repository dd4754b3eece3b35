"""Looking inside LiteRT: quantized tensors as further outputs."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from quaver.engines.inspection import ModelPart, Revealed
from quaver.engines.litert.flatbuffer import packed, unpacked
from quaver.engines.litert.runner import LiteRTRunner, facts_in
from quaver.runtime.runner import Array
from quaver.runtime.seal import unsealed


class RevealingRunner(LiteRTRunner):
    """A runner that gives quantized tensors behind the model's own outputs: what they stand for, in PyTorch's order."""

    def __init__(self, content: bytes, threads: int, shown: list[Any], **options: Any) -> None:
        super().__init__(content, threads, **options)
        self.shown = [order for _, order, *_ in shown]
        self.axes = [axis for _, _, *axes in shown for axis in axes or [0]]  # older files tell none

    def run(self, arrays: list[Array]) -> list[Array]:
        """One call of the interpreter."""
        got = super().run(arrays)
        own = len(got) - len(self.shown)
        details = self.interpreter.get_output_details()[own:]
        return [*got[:own], *map(_dequantized, got[own:], details, self.shown)]


def _dequantized(integers: Array, details: dict[str, Any], order: list[int]) -> Array:
    scale, zero_point = details["quantization"]
    values: Array = (integers.astype(np.float32) - zero_point) * np.float32(scale)
    return values.transpose(np.argsort(order))


def reveal(file: Path, names: list[str], threads: int, apart: Collection[str], **options: Any) -> Revealed:
    """The model with these tensors as further outputs; ``options`` are the interpreter's."""
    content = unsealed(file)
    tensors = facts_in(content)["tensors"]
    model = unpacked(content)
    graph = model.subgraphs[0]
    there = [name for name in names if name in tensors]
    own = len(graph.outputs)
    graph.outputs = [*graph.outputs, *(tensors[name][0] for name in there)]
    run = RevealingRunner(packed(model), threads, [tensors[name] for name in there], **options)
    return Revealed([ModelPart(own, {name: own + place for place, name in enumerate(there)}, run)], set(there))
