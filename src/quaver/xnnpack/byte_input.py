"""A graph for XNNPACK that takes a camera's bytes: what stands in front of the program's own input."""

from typing import Any

import torch
from torch import Tensor, fx

from quaver.errors import EngineError
from quaver.graph.nodes import facts
from quaver.image_input import ImageInput
from quaver.program import Program
from quaver.program.image_bytes import affine_for
from quaver.xnnpack.one_image import example
from quaver.xnnpack.partitioning import constant

aten = torch.ops.aten


def take_bytes(module: fx.GraphModule, program: Program, image: ImageInput | None, title: str) -> tuple[Tensor, ...]:
    """Let a graph take ``image``, where there is one, in place of the float tensor; and give an example of what it takes."""
    inputs = example(program, 1)
    if image is None:
        return inputs
    affine = affine_for(program, image)
    if affine is None:
        raise EngineError(
            f"{title}: image=: its files have a product and a sum for bytes, and this program's input needs a table: some "
            "bytes lie between two integers, or it is not rounded first. Export without image=, or for another engine."
        )
    (given,) = (node for node in module.graph.nodes if node.op == "placeholder")
    readers = [reader for reader in given.users if facts(reader).kind != "shape"]
    with module.graph.inserting_after(given):
        anchor = module.graph.call_function(aten.alias.default, (given,))  # a place to build in front of
    with module.graph.inserting_before(anchor):
        planes = call(module, aten.permute, given, [0, 3, 1, 2]) if image.layout == "NHWC" else given
        floats = call(module, aten._to_copy, planes, dtype=torch.float32)
        ordered = _turned_round(module, floats) if image.color == "BGR" else floats
        factor, shift = (torch.from_numpy(values).view(1, -1, 1, 1) for values in (affine.factor, affine.shift))
        product = call(module, aten.mul, ordered, constant(module, "image_factor", factor), overload="Tensor")
        values = call(module, aten.add, product, constant(module, "image_shift", shift), overload="Tensor")
    module.graph.erase_node(anchor)
    for reader in readers:
        reader.replace_input_with(given, values)
    module.recompile()
    return (torch.zeros(image.shape(inputs[0].shape), dtype=torch.uint8),)


def described(program: Program, image: ImageInput | None) -> list[Any]:
    """What a file takes: name, shape (None for a batch of any size, sides as captured) and type of each input."""
    leaves = [
        [leaf.name, (*leaf.shape[:1], *leaf.sizes(1)[1:]), str(leaf.dtype).removeprefix("torch.")]
        for leaf in program.signature.tensors
    ]
    return leaves if image is None else [[name, image.shape(shape), image.dtype] for name, shape, _ in leaves]


def _turned_round(module: fx.GraphModule, floats: fx.Node) -> fx.Node:
    """The three channels in the other order."""
    planes = [call(module, aten.slice, floats, 1, place, place + 1, overload="Tensor") for place in (2, 1, 0)]
    return call(module, aten.cat, planes, 1)


def call(module: fx.GraphModule, op: Any, *args: Any, overload: str = "default", **options: Any) -> fx.Node:
    """A node of the graph."""
    return module.graph.call_function(getattr(op, overload), args, options)
