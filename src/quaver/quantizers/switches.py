"""The four switches, for ``program.apply(...)``: each takes a module and leaves alone what is not a quantizer."""

from torch import nn

from quaver.quantizers.quantizer import Quantizer


def disable_fake_quant(module: nn.Module) -> None:
    """Let values pass unrounded; ranges go on being observed."""
    if isinstance(module, Quantizer):
        module.quantizing = False


def enable_fake_quant(module: nn.Module) -> None:
    """Round again."""
    if isinstance(module, Quantizer):
        module.quantizing = True


def disable_observer(module: nn.Module) -> None:
    """Keep the ranges as they are from here on."""
    if isinstance(module, Quantizer):
        module.observing = False


def enable_observer(module: nn.Module) -> None:
    """Let training batches move the ranges again."""
    if isinstance(module, Quantizer):
        module.observing = True
