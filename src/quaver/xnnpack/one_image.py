"""Files that take one image at a time: with what they are written, and what cannot be."""

from torch import Tensor

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
