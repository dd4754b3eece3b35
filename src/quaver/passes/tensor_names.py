"""What the tensors of a graph are called: after the op they come from, or the input they are."""

import operator
from itertools import accumulate

from torch import fx

from quaver.program.quantized_tensors import maker_of
from quaver.quantizers import Quantizer


def tensor_name(node: fx.Node, makers: dict[fx.Node, str]) -> str:
    """``relu.output`` for what the op ``relu`` gives, ``split.output1`` for a part of it, an input's name for an input."""
    maker = maker_of(node, makers)
    name = makers.get(maker, maker.name)
    part = node.args[1] if node.target is operator.getitem else ""
    return f"{name}.output{part}" if maker in makers and maker.op != "placeholder" else name


class QuantizersByName(dict[str, Quantizer]):
    """Quantizers by the names of their tensors, which are the paths that they stand at: none on the way to another."""

    def __init__(self) -> None:
        super().__init__()
        self._ways: set[str] = set()

    def __setitem__(self, name: str, quantizer: Quantizer) -> None:
        super().__setitem__(name, quantizer)
        self._ways.update(_way_to(name))

    def free_name(self, name: str) -> str:
        """``name``, or one like it: no quantizer stands at this path, or on the way to it, or behind it."""
        while name in self._ways or any(path in self for path in _way_to(name)):
            name += "_"
        return name


def _way_to(name: str) -> list[str]:
    """``a``, ``a.b`` and ``a.b.c`` for ``a.b.c``."""
    return list(accumulate(name.split("."), "{}.{}".format))
