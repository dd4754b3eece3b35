"""``torch.compile`` with the settings that suit quantizers."""

from typing import Any

import torch
from torch import nn

# A quantizer reads its input twice: once for the range, once to round it. By default the compiler writes a batch norm's
# output to memory when two readers want it and it takes more than a few loads to compute. Computing it twice is cheaper
# than writing and reading it: on an H200 a MobileNetV1 step drops from 1.27 to 1.07 of the float model's kernel time.
RECOMPUTE: dict[str, Any] = {"realize_reads_threshold": 24, "realize_opcount_threshold": 200}


def compile_training(model: nn.Module, *, cuda_graphs: bool = False) -> Any:
    """``model`` compiled for training; the model itself keeps its weights, names and modes.

    ``cuda_graphs`` replays a recorded step: worth it where the processor, not the accelerator, is the bottleneck. Shapes
    must then stay the same from step to step.
    """
    return torch.compile(model, options=RECOMPUTE | ({"triton.cudagraphs": True} if cuda_graphs else {}))
