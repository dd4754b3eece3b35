"""Program: graphs over a model's own tensors, with the stage they have reached."""

from typing import TYPE_CHECKING

from quaver.on_demand import on_demand

if TYPE_CHECKING:
    from quaver.program.op_record import OpRecord
    from quaver.program.placements import OpPlan, Placements
    from quaver.program.program import EVAL, TRAIN, Program
    from quaver.program.signature import InputTensor, Signature
    from quaver.program.stage import Stage

on_demand(
    __name__,
    {
        "placements": "OpPlan Placements",
        "program": "EVAL TRAIN Program",
        "op_record": "OpRecord",
        "signature": "InputTensor Signature",
        "stage": "Stage",
    },
)

__all__ = ["EVAL", "TRAIN", "InputTensor", "OpPlan", "OpRecord", "Placements", "Program", "Signature", "Stage"]
