"""The trial of a file after export: does it compute what the program does, on inputs that reach the ranges of training?"""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quaver.engines import Engine
from quaver.errors import EngineError, InputError, QuaverWarning
from quaver.export.comparison import Allowed, Comparison
from quaver.export.full_range import saturates_here
from quaver.export.integers import Simulated
from quaver.image_input import BYTES, ImageInput
from quaver.program import EVAL, Program
from quaver.program.quantized_tensors import quantized_tensors
from quaver.program.signature import InputTensor
from quaver.runtime import Runner

MANY, FEW = 8, 4
LARGE = 2**16
"""Inputs to run: many, or few where one has more numbers than this."""
HUGE = 2**29
"""Integers inside a network, of all these inputs: more than this, and they are compared one input after the other. Some five
copies are held at once, the program's and the engine's, in float32."""


def compare(program: Program, file: Path, engine: Engine, run: Runner, image: ImageInput | None = None) -> dict[str, Any]:
    """Run both on the same inputs; refuse a file that computes something else at any tensor that the engine shows."""
    comparison = Comparison(program, file, engine, run, Allowed(), all_shortcuts=False, image=image)
    batches = []
    for tried in as_many_as_fit(comparison, inputs_for(program) if image is None else [bytes_for(program, image)]):
        inputs, simulated = with_numbers(comparison, tried)
        if all(map(len, inputs)):
            batches.append(inputs)
            try:
                comparison.add(*inputs, simulated=simulated)
            except InputError as error:
                raise EngineError(f"export: {error} Nothing was written.") from error
    if not batches:
        warn("it was not compared, for the program gives NaN or Inf for all inputs that were tried.")
        return {"engine": run.engine, "tensors": 0}
    failures = comparison.failures()
    if failures and saturates_here(program, engine):
        warn(f"its weights are of full range, and this processor saturates: {failures[0]}.")
    elif (
        failures
        and comparison.clear_failures()
        and (clear := _looked_at_closely(program, file, engine, run, batches, image))
    ):
        raise EngineError(
            f"export: what {run.engine} computes from the file is not what the program computes: {_first_of(clear)} "
            "Nothing was written. Please report it, with the network if you can."
        )
    elif failures:
        differences = (*comparison.layers(), *comparison.results())
        share = max(tensor.beyond / tensor.size for tensor in differences if tensor.size)
        warn(f"{_first_of(failures)} At most {100 * share:.2g} % of a tensor, and so little: sums rounded in another order.")
    noise = comparison.signal_to_noise_db
    return {
        "engine": run.engine,
        "largest_difference": comparison.largest_difference,
        "signal_to_noise_db": noise if math.isfinite(noise) else None,
        "tensors": len(comparison.layers()),
    }


def _looked_at_closely(
    program: Program, file: Path, engine: Engine, run: Runner, batches: list[list[Tensor]], image: ImageInput | None
) -> list[str]:
    """What is clearly wrong where every shortcut is asked for, and what follows is computed from the engine's own."""
    comparison = Comparison(program, file, engine, run, Allowed(), engines_shortcuts=True, image=image)
    for inputs in batches:
        comparison.add(*inputs)
    return comparison.clear_failures()


def _first_of(failures: list[str]) -> str:
    more = f" And {len(failures) - 1} more." if len(failures) > 1 else ""
    return f"{failures[0]}.{more}"


def warn(message: str) -> None:
    """Say what keeps a good file from being compared to the last bit."""
    warnings.warn(
        f"export: it is not known that the file computes, bit for bit, what the program does: {message} quaver.verify "
        "tells.",
        QuaverWarning,
        stacklevel=6,
    )


def inputs_for(program: Program) -> list[Tensor]:
    """Inputs of the program that reach the ends of the ranges seen in training, the same each time.

    Noise over the whole range, on a level that each channel has of its own: from one input to the next there is less noise.
    What is not quantized gets normal noise, and whole numbers are zeros, for they may be places in a table.
    """
    generator = torch.Generator().manual_seed(0)
    leaves, ranges = program.signature.tensors, _ranges(program)
    numbers = sum(math.prod(leaf.sizes(1)) for leaf in leaves)
    count = FEW if numbers > LARGE else MANY
    return [_input(leaf, count, ranges.get(place), generator) for place, leaf in enumerate(leaves)]


def bytes_for(program: Program, image: ImageInput) -> Tensor:
    """Images that hold every byte in every channel, where there is room: the same each time."""
    (leaf,) = program.signature.tensors
    sizes = leaf.sizes(1)[1:]
    sizes[1:] = image.size or sizes[1:]
    pixels = math.prod(sizes[1:])
    count = leaf.shape[0] or (FEW if pixels * image.channels > LARGE else MANY)
    generator, values = np.random.default_rng(0), np.arange(count * pixels) % BYTES
    planes = np.stack([generator.permutation(values) for _ in range(image.channels)], axis=1).astype(np.uint8)
    images_nchw = np.moveaxis(planes.reshape(count, pixels, -1), 2, 1).reshape(count, *sizes)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(images_nchw, 1, image.axis)))


def as_many_as_fit(comparison: Comparison, inputs: list[Tensor]) -> list[list[Tensor]]:
    """Inputs as one batch, or each by itself where a network has too many integers inside for that."""
    is_free = all(leaf.shape[0] is None for leaf in comparison.simulation.program.signature.tensors if leaf.shape)
    count = len(inputs[0]) if inputs and inputs[0].dim() else 0
    if not is_free or count > FEW:
        return [inputs]
    pieces = [[tensor[place : place + 1] for tensor in inputs] for place in range(count)]
    integers = comparison.simulation.run(*comparison.prepared(*pieces[0])).integers
    return pieces if count * sum(whole.size for whole in integers.values()) > HUGE else [inputs]


def with_numbers(comparison: Comparison, inputs: list[Tensor]) -> tuple[list[Tensor], Simulated | None]:
    """Those of a batch for which the program itself computes numbers: a logarithm has none for what it never sees.

    With what the program makes of them, where that is all.
    """
    simulation = comparison.simulation
    simulated = simulation.run(*comparison.prepared(*inputs))
    values = [*simulated.outputs, *map(torch.from_numpy, simulated.integers.values())]
    count = len(inputs[0]) if inputs and inputs[0].dim() else 0
    if any(not value.dim() or len(value) != count for value in (*inputs, *values)):
        return inputs, simulated  # not a batch of images
    fine = torch.stack([value.isfinite().reshape(count, -1).all(1) for value in values]).all(0)
    free = all(leaf.shape[0] is None for leaf in simulation.program.signature.tensors)
    return (inputs, simulated) if fine.all() or not free else ([tensor[fine] for tensor in inputs], None)


def _input(leaf: InputTensor, count: int, bounds: tuple[float, float] | None, generator: torch.Generator) -> Tensor:
    shape = leaf.sizes(count)
    if not leaf.dtype.is_floating_point:
        return torch.zeros(shape, dtype=leaf.dtype)
    if bounds is None or len(shape) < 2:
        return torch.randn(shape, generator=generator).to(leaf.dtype)
    low, high = bounds
    noise, level = (
        torch.rand(shape, generator=generator),
        torch.rand([*shape[:2], *[1] * len(shape[2:])], generator=generator),
    )
    share = torch.linspace(1, 0.2, shape[0]).view(-1, *[1] * len(shape[1:]))
    return (low + (high - low) * (share * noise + (1 - share) * level)).to(leaf.dtype)


def _ranges(program: Program) -> dict[int, tuple[float, float]]:
    """The ends of each input's range, by its place: of those that are quantized."""
    inputs = [node for node in program.graphs[EVAL].nodes if node.op == "placeholder"]
    rounded = [tensor for tensor in quantized_tensors(program) if tensor.quantize.args[0] in inputs]
    return {inputs.index(tensor.maker): (tensor.low * tensor.step, tensor.high * tensor.step) for tensor in rounded}
