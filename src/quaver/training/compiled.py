"""``torch.compile`` with the settings that suit quantizers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch import config as partitioner

# A quantizer reads its input twice: once for the range, once to round it. By default the compiler writes a batch norm's
# output to memory when two readers want it and it takes more than a few loads to compute. Computing it twice is cheaper
# than writing and reading it: on an H200 a MobileNetV1 step drops from 1.27 to 1.07 of the float model's kernel time.
RECOMPUTE: dict[str, Any] = {"realize_reads_threshold": 24, "realize_opcount_threshold": 200}

# What a quantizer's gradient needs of its input is whether it was inside the range. After a residual addition the compiler
# would keep that input for it, beside the rounded tensor that the next convolution keeps anyway; with these it is
# computed again from what is there, and a step keeps no more than the float model's step.
KEEP_NO_MORE = {"ban_recompute_used_far_apart": False, "ban_recompute_long_fusible_chains": False}


def compile_training(model: nn.Module, *, cuda_graphs: bool = False) -> Any:
    """``model`` compiled for training; the model itself keeps its weights, names and modes.

    ``cuda_graphs`` replays a recorded step: worth it where the processor, not the accelerator, is the bottleneck. Shapes
    must then stay the same from step to step.
    """
    options = RECOMPUTE | (_replayed() if cuda_graphs else {})
    return torch.compile(model, backend=partial(_compile_graph, options=options))


def _replayed() -> dict[str, Any]:
    # The pass saves time on the accelerator and takes a few more launches, which only a replayed step gets for free.
    from quaver.training.ranges_beside_statistics import RangesBesideStatistics

    return {"triton.cudagraphs": True, "post_grad_custom_post_pass": RangesBesideStatistics()}


def _compile_graph(graph: fx.GraphModule, inputs: Sequence[Tensor], *, options: dict[str, Any]) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx

    with partitioner.patch(KEEP_NO_MORE):
        compiled: Any = compile_fx(graph, inputs, config_patches=options)
    return compiled  # type: ignore[no-any-return]
