"""What the two quantizing passes share: how they quantize the inputs of ops, and the ops that they leave float."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from quaver.checking import anything, names
from quaver.config.layer_bits import bits_for
from quaver.config.options import like, option
from quaver.config.quantization_options import QuantizerOptions, SharedOptions, TargetOption
from quaver.config.scopes import first_in
from quaver.graph.nodes import Op, OpNode, is_float, is_written, pads_with_infinity
from quaver.passes.base import Pass
from quaver.passes.placement import Ops, place
from quaver.passes.quantizer_groups import Plan
from quaver.program import Program, Stage
from quaver.program.placements import Options
from quaver.program.reason import Because, Reason, SkipPattern
from quaver.quantizers import RANGE_RULES


def unquantizable(op: OpNode, twin: OpNode | None) -> Because | None:
    """Why no pass can quantize the inputs of an op, whose ``twin`` is the same op in training; or nothing."""
    if not op.inputs or not all(map(is_float, op.inputs)):
        return Because("its inputs are not floating-point tensors")
    if any(map(pads_with_infinity, op.inputs)):
        return Because("its input is padded with infinity, which no grid holds")
    if twin is None:
        return Because("it runs only in evaluation, so training cannot find its range")
    if any(map(is_written, (*op.inputs, twin.node, *twin.node.all_input_nodes))):
        return Because("the model writes into this tensor in place (an assignment to a slice, say); build a new one instead")
    return None


@dataclass(frozen=True, kw_only=True)
class SkipOption:
    """Which ops a pass leaves alone."""

    skip_pattern: str | tuple[str, ...] | list[str] = like(SharedOptions, "not_quant_pattern")


# In a program's history the options of a pass stand in the order of its bases, the last base first.
@dataclass(frozen=True, kw_only=True)
class InputQuantizers(TargetOption, QuantizerOptions, SkipOption, Pass):
    """What the two quantizing passes have in common: how the inputs of an op are quantized."""

    needs: ClassVar = (Stage.FLOAT, Stage.PREPARED)
    otherwise: ClassVar = "Quantizers go into the float program, before it is trained and frozen."

    act_quantize_func: Any = option(None, anything(), "Your own quantizer of activations.")
    act_preprocess_func: Any = option(None, anything(), "What stands in front of a quantizer of activations.")
    quantizable_op_type: str | tuple[str, ...] | list[str] = option((), names(()), "The types of the ops to quantize.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.quantizable_op_type, str):
            object.__setattr__(self, "quantizable_op_type", (self.quantizable_op_type,))

    @abstractmethod
    def plan(self, ops: Ops, planned: Plan) -> tuple[Plan, dict[str, Reason]]:
        """What to quantize beside what is planned already, and what is declined and why."""

    def rewrite(self, program: Program) -> Program:
        """Quantizers where `plan` says."""
        return place(program, self.engine, self.plan)

    def skipped_by(self, op: Op) -> SkipPattern | None:
        """The skip pattern that keeps the op float, if one does."""
        pattern = first_in(op.scope, self.skip_pattern)
        return None if pattern is None else SkipPattern(op.scope, pattern)

    def input_options(self, op: Op) -> Options:
        """What the quantizer of an op's input is made from."""
        return self._input_options | {"bits": self.bits_for(op)[1]}

    @cached_property
    def _input_options(self) -> Options:
        return self.options(self.activation_quantize_type, self.act_quantize_func, self.act_preprocess_func)

    def bits_for(self, op: Op) -> tuple[int, int]:
        """Bits of an op's weight and of its inputs."""
        bits = getattr(self, "weight_bits", 8), self.activation_bits
        return bits_for(op.scope, self.layer_bits, bits) if self.layer_bits else bits

    def options(self, kind: str, function: Any, preprocess: Any) -> Options:
        """The options that a range rule knows, bits aside, and the user's own functions if there are any."""
        rule = RANGE_RULES[kind]
        own = rule.fixed | {name: getattr(self, name) for name in rule.takes}
        custom = {"function": function, "preprocess": preprocess}
        given = {key: value for key, value in custom.items() if value is not None}
        common: Options = {"kind": rule.quantizer.kind, "pass_through": self.pass_through}
        return common | own | given
