"""PyTorch computes an encoder layer in evaluation by one kernel, which reads weights past the layers that hold them: the
quantized ones would not be asked. Where there is a hook it goes the usual way.
"""

from typing import Any

from torch import nn

from quaver.eager.quantized_layers import Swapped


def leave_fast_path(net: nn.Module) -> None:
    """Let encoder layers call the quantized layers in them."""
    for module in net.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and any(isinstance(inner, Swapped) for inner in module.modules()):
            allow_fast_path(module)  # never twice
            module.register_forward_pre_hook(_does_nothing)


def allow_fast_path(net: nn.Module) -> None:
    """Take the hooks away again."""
    for module in net.modules():
        for key in [key for key, hook in module._forward_pre_hooks.items() if hook is _does_nothing]:
            del module._forward_pre_hooks[key]


def _does_nothing(module: nn.Module, args: Any) -> None:
    """It is enough that it is there."""
