"""The fifth pass: the program in the form that the mobile runtime (ExecuTorch with XNNPACK) executes."""

from dataclasses import dataclass
from typing import ClassVar

from quaver.config.options import Checked
from quaver.engines import mobile_engine
from quaver.passes.base import Pass
from quaver.passes.convert_to_int8 import ConvertToInt8Pass
from quaver.program import Program, Stage


@dataclass(frozen=True, kw_only=True)
class TransformForMobilePass(Checked, Pass):
    """Rewrite every quantize and dequantize as signed int8, and add one behind each quantized op that has none.

    XNNPACK knows no uint8: 0 … 255 becomes −128 … 127 with zero point −128, the same grid. It rounds the output of every
    int8 op, so a convolution that was added to unrounded, and the last layer, get a pair with the range observed in
    training; there the mobile program's results differ from the frozen one's by that rounding. The program then computes
    in XNNPACK's own arithmetic, which the exported file is equal to.
    """

    needs: ClassVar = (Stage.FROZEN, Stage.INT8)
    otherwise: ClassVar = "Freeze the trained program first (QuantizationFreezePass, or quaver.convert)."

    def rewrite(self, program: Program) -> Program:
        """As the mobile engine wants it."""
        stored = ConvertToInt8Pass().apply(program) if program.stage is Stage.FROZEN else program
        engine = mobile_engine()
        return engine.rewrite(stored.made_for(engine.name))
