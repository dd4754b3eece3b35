"""The layers of a live model, each once, under all their names."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from quaver.quantizers import Quantizer


@dataclass(frozen=True)
class Named:
    """A layer, its names, and the module that says ``skip_quant``: the layer itself or one around it, by name."""

    layer: nn.Module
    names: tuple[str, ...]
    skipped: str

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]

    def calls_its_own(self, kind: type[nn.Module]) -> bool:
        """Whether the layer computes what its class ``kind`` computes: nobody has put another forward in the place."""
        plain = type(self.layer).forward is kind.forward and "forward" not in self.layer.__dict__
        return plain and getattr(type(self.layer), "_conv_forward", None) is getattr(kind, "_conv_forward", None)


def named_layers(net: nn.Module) -> list[Named]:
    """Every module of a model but quantizers and what is in them."""
    names: dict[nn.Module, list[str]] = {}
    skipped: dict[nn.Module, str] = {}
    for name, module, skipping in _modules_below(net, "", ""):
        names.setdefault(module, []).append(name)
        skipped[module] = skipped.get(module) or skipping
    return [Named(module, tuple(titles), skipped[module]) for module, titles in names.items()]


def _modules_below(module: nn.Module, name: str, skipping: str) -> Iterator[tuple[str, nn.Module, str]]:
    if getattr(module, "skip_quant", False) is True:
        skipping = skipping or (repr(name) if name else "the model")
    yield name, module, skipping
    for child_name, child in module._modules.items():
        if child is not None and not isinstance(child, Quantizer):
            yield from _modules_below(child, f"{name}.{child_name}" if name else child_name, skipping)
