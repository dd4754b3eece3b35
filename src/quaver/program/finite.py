"""NaN and Inf in what a program computes with."""

import math

import torch
from torch import Tensor, nn

from quaver.errors import ConversionError
from quaver.graph.nodes import is_quantize
from quaver.program.program import EVAL, Program
from quaver.program.views import read

STATISTICS = ("running_mean", "running_var")


def refuse_not_finite(program: Program) -> None:
    """Name the tensors whose NaN or Inf would be in every output: weights, biases, statistics, ranges.

    Other buffers may hold Inf, such as the mask of an attention.
    """
    bad = not_finite(program)
    bad += [
        node.args[0].name for node in program.graphs[EVAL].nodes if is_quantize(node) and not math.isfinite(node.args[1])
    ]
    for name, quantizer in program.quantizers():
        if not all(bool(torch.isfinite(value).all()) for value in quantizer.state_dict().values()):
            bad.append(f"the range of {name}")
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise ConversionError(f"{bad[0]!r} holds NaN or Inf{more}: go back to a checkpoint from before training diverged.")


def not_finite(program: Program) -> list[str]:
    """The tensors of the model that hold NaN or Inf and are read in evaluation."""
    named = {node.target: read(program, node.target) for node in program.graphs[EVAL].nodes if node.op == "get_attr"}
    return [name for name, value in named.items() if not _is_fine(name, value)]


def _is_fine(name: str, value: Tensor | nn.Module) -> bool:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return True
    if isinstance(value, nn.Parameter) or name.endswith(STATISTICS):
        return bool(torch.isfinite(value).all())
    return not bool(torch.isnan(value).any())
