"""What the tensors of a graph are called: after the op they come from, or the input they are."""

import operator
from collections.abc import Collection

from torch import fx

from quaver.program.quantized_tensors import maker_of


def tensor_name(node: fx.Node, makers: dict[fx.Node, str]) -> str:
    """``relu.output`` for what the op ``relu`` gives, ``split.output1`` for a part of it, an input's name for an input."""
    maker = maker_of(node, makers)
    name = makers.get(maker, maker.name)
    part = node.args[1] if node.target is operator.getitem else ""
    return f"{name}.output{part}" if maker in makers and maker.op != "placeholder" else name


def free_name(name: str, taken: Collection[str]) -> str:
    """``name``, or one like it: none of those taken may stand at this path, or on the way to it, or behind it."""
    while _is_taken(name, taken):
        name += "_"
    return name


def _is_taken(name: str, taken: Collection[str]) -> bool:
    parts = name.split(".")
    on_the_way = any(".".join(parts[:length]) in taken for length in range(1, len(parts) + 1))
    return on_the_way or any(other.startswith(f"{name}.") for other in taken)
