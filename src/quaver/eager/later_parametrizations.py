"""Layers that were parametrized after they were quantized: their class was made of ours."""

from torch import nn

from quaver.eager.quantized_layers import Swapped
from quaver.errors import ConversionError


def refuse_later_parametrizations(net: nn.Module) -> None:
    """Such a layer has no way back past its class; parametrized before it was quantized, it has."""
    for name, module in net.named_modules():
        if isinstance(module, Swapped) and module._quaver_class not in type(module).__bases__:
            raise ConversionError(
                f"{name!r}: it was parametrized after it was quantized, so it cannot become a float layer. Take that off "
                "first: torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight')."
            )
