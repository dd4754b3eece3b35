"""A program as an ExecuTorch file (``.pte``): XNNPACK runs all that it takes, ExecuTorch's own kernels run the rest."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.infra.pass_base import PassResult

from quaver.engines.engine import WriteOptions
from quaver.engines.executorch.runner import FACTS
from quaver.errors import EngineError, QuaverWarning, StageError
from quaver.image_input import ImageInput
from quaver.log_suppression import suppressed_logs
from quaver.program import Program, Stage
from quaver.runtime.seal import sealed
from quaver.xnnpack.byte_input import described, take_bytes
from quaver.xnnpack.one_image import refuse_joint_outputs
from quaver.xnnpack.partitioning import float_weights, for_xnnpack, split


def write(program: Program, file: Path, origin: dict[str, Any], options: WriteOptions) -> None:
    """Write a program as ``model.pte``."""
    kept = {key: origin[key] for key in ("preprocessing",) if key in origin}
    file.write_bytes(serialized(program, kept, options.image))


def serialized(program: Program, origin: dict[str, Any] | None = None, image: ImageInput | None = None) -> bytes:
    """The content of a ``.pte`` file that computes what a mobile program computes, its weights stored as int8.

    A program with a free batch is written for a batch of one, and `quaver.runtime` runs larger ones image by image.
    ExecuTorch would take a range of sizes, but XNNPACK then needs the memory of the largest from the first call on, and
    leaves slices, reshapes and bilinear resizing to slower kernels; a larger batch is no faster. ``origin`` travels with
    the file, as JSON that its method ``quaver`` gives, beside what ExecuTorch does not keep: the names of the inputs, and
    which sizes are free. With ``image`` it takes a camera's bytes.
    """
    manager = lowered(program, origin, image)
    with suppressed_logs():
        try:
            return sealed(manager.to_executorch().buffer)
        except Exception as error:  # whatever it is, it is about the program
            raise _refusal(error) from error


def lowered(program: Program, origin: dict[str, Any] | None = None, image: ImageInput | None = None) -> Any:
    """The program as ExecuTorch's ``EdgeProgramManager``, with the parts that XNNPACK takes handed over to it."""
    if program.stage not in (Stage.MOBILE, Stage.FLOAT):
        raise StageError(
            f"ExecuTorch: takes a mobile program, or a float one, and this one is {program.stage.value}. "
            "TransformForMobilePass makes a mobile program of a frozen one."
        )
    refuse_joint_outputs(program, "ExecuTorch")
    with suppressed_logs():
        try:
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower
        except ImportError as error:
            raise EngineError(
                "executorch is not installed: it writes .pte files. Install it with pip install 'quaver[executorch]'."
            ) from error
    module = program.graph_module()
    warn_of_float_weights(module.graph)
    inputs = take_bytes(module, program, image, "ExecuTorch")
    for_xnnpack(module, inputs)
    with suppressed_logs():
        try:
            return to_edge_transform_and_lower(
                torch.export.export(_Named(module), inputs, strict=False),
                transform_passes=[split_again],
                partitioner=[XnnpackPartitioner()],
                constant_methods={FACTS: json.dumps({"inputs": described(program, image), "origin": origin or {}})},
            )
        except Exception as error:  # whatever it is, it is about the program
            raise _refusal(error) from error


class _Named(nn.Module):
    """A module whose tensors have names that begin with a letter, as one of ExecuTorch's passes needs them."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self.model = module

    def forward(self, *inputs: Tensor) -> Any:
        return self.model(*inputs)


def _refusal(error: Exception) -> EngineError:
    cause: BaseException = error
    while cause.__cause__ is not None:  # what went wrong, not which pass was at work
        cause = cause.__cause__
    reason = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    return EngineError(f"ExecuTorch cannot express the program: {reason} Leave out the op, or write it in others.")


def warn_of_float_weights(graph: fx.Graph) -> None:
    """Say which weights are not stored as int8."""
    names = float_weights(graph)
    if names:
        warnings.warn(
            f"{len(names)} layers, {names[0]!r} first, compute on float activations, where XNNPACK takes no int8 weights: "
            "theirs are stored as float32 in the .pte file. Quantize their inputs and outputs as well.",
            QuaverWarning,
            stacklevel=4,
        )


def split_again(module: fx.GraphModule) -> PassResult:
    """A dequantize for every reader of the ops that ExecuTorch took apart, and of copies, which it leaves out.

    ExecuTorch 1.4 mixes up height and channels of a tensor that XNNPACK dequantizes, gives back and reads on.
    """
    for node in module.graph.nodes:
        if is_named(node, "clone") and is_named(node.args[0], "dequantize_per_tensor") and has_order_of(node, node.args[0]):
            node.replace_all_uses_with(node.args[0])
    module.graph.eliminate_dead_code()
    for node in list(module.graph.nodes):
        if is_named(node, "dequantize_per_tensor"):
            split(module, node)
    module.recompile()
    return PassResult(module, True)


def is_named(node: Any, name: str) -> bool:
    """Whether a node calls an op with this in its name."""
    return isinstance(node, fx.Node) and node.op == "call_function" and name in str(node.target)


def has_order_of(node: fx.Node, other: Any) -> bool:
    """Whether two tensors lie in memory alike."""
    return bool(node.meta["val"].dim_order() == other.meta["val"].dim_order())
