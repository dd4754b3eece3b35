"""Program: graphs over a model's own tensors, with the stage they have reached."""

from quaver.graph.nodes import Op, copy_graph
from quaver.program.placements import OpPlan, Placements
from quaver.program.program import EVAL, TRAIN, Program
from quaver.program.record import OpRecord
from quaver.program.signature import InputTensor, Signature
from quaver.program.stage import Stage

__all__ = [
    "EVAL",
    "TRAIN",
    "InputTensor",
    "Op",
    "OpPlan",
    "OpRecord",
    "Placements",
    "Program",
    "Signature",
    "Stage",
    "copy_graph",
]
