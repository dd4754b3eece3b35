"""Files that take one image at a time: with what they are written, what cannot be, and where images lie in their tensors."""

from collections.abc import Iterable

from torch import Tensor, fx

from quaver.errors import EngineError
from quaver.program import Program
from quaver.xnnpack.partitioning import shapes

_ODD = 97
"""A batch that no model has anywhere by chance."""


def example(program: Program, batch: int) -> tuple[Tensor, ...]:
    """Zeros in the shapes that the program takes, with this batch where it is free."""
    return tuple(program.signature.zeros(batch))


def refuse_joint_outputs(program: Program, title: str) -> None:
    """A file that takes one image at a time cannot give a result for a batch as a whole."""
    if not program.signature.dynamic_batch:
        return
    module = program.graph_module()
    for position, shape in enumerate(shapes(module, example(program, _ODD))):
        if not shape or shape[0] != _ODD:
            raise EngineError(
                f"{title}: output {position} of the model has no batch in front, and its files run one image at a "
                "time. Let the model give a result per image."
            )


def batch_axes(program: Program, module: fx.GraphModule, nodes: Iterable[fx.Node]) -> dict[fx.Node, int | None]:
    """The dimension in which images lie one behind the other, of what each node of the program's module gives.

    None for what is the same for every image, such as a table of positions.
    """
    nodes, found = list(nodes), []
    for batch in (1, _ODD):
        shapes(module, example(program, batch))
        found.append([tuple(node.meta["val"].shape) for node in nodes])
    return {node: _grown(*pair) for node, *pair in zip(nodes, *found, strict=True)}


def _grown(one: tuple[int, ...], many: tuple[int, ...]) -> int | None:
    return next((axis for axis, (before, behind) in enumerate(zip(one, many, strict=True)) if before != behind), None)
