"""Weights that are computed in every forward: PyTorch has several ways to do that, and each has its own way back."""

from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from quaver.eager.quantized_layers import Swapped
from quaver.errors import ConversionError

_UNPARAMETRIZE = "torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight')"
_UNHOOK: dict[type, str] = {
    WeightNorm: "torch.nn.utils.remove_weight_norm(layer)",
    SpectralNorm: "torch.nn.utils.remove_spectral_norm(layer)",
    BasePruningMethod: "torch.nn.utils.prune.remove(layer, 'weight')",
}


def way_to_a_parameter(layer: Swapped) -> str:
    """How a quantized layer's weight becomes a parameter again."""
    if parametrize.is_parametrized(layer):
        # that takes the layer's class off, which is ours as long as it is quantized
        return f"Make it a parameter: quanter.remove(net), {_UNPARAMETRIZE}, quanter.quantize(net), and train on."
    for hook in layer._forward_pre_hooks.values():
        for kind, call in _UNHOOK.items():
            if isinstance(hook, kind):
                return f"Make it a parameter: {call}."
    return "Make it a parameter."


def refuse_later_parametrizations(net: nn.Module) -> None:
    """A layer that was parametrized after it was quantized has a class that was made of ours, and no way back past it."""
    for name, module in net.named_modules():
        if isinstance(module, Swapped) and module._quaver_class not in type(module).__bases__:
            raise ConversionError(
                f"{name!r}: it was parametrized after it was quantized, so it cannot become a float layer. Take that off "
                f"first: {_UNPARAMETRIZE}."
            )
