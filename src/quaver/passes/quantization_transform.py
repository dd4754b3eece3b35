"""The first pass: quantizers for the weights and inputs of convolutions, linear layers and their like."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import fx

from quaver.checking import anything, boolean, names
from quaver.config.options import like, lists_options, option
from quaver.config.quantization_options import SaturationOption, WeightOptions, WeightRange
from quaver.graph.nodes import Op, is_fixed, rank_of, reads_parameter
from quaver.operators import CONVOLUTIONS, WEIGHTED
from quaver.passes.placement import Ops
from quaver.passes.quantize_inputs import InputQuantizers, unquantizable
from quaver.passes.quantizer_groups import Plan
from quaver.program import EVAL, TRAIN, OpPlan, Program
from quaver.program.placements import Options
from quaver.program.reason import Because, Reason

OP_TYPES = WEIGHTED | {"matmul"}


@dataclass(frozen=True, kw_only=True)
class ActivationSwitch:
    """Whether activations are quantized at all."""

    quantize_activations: bool = option(True, boolean(), "False: weights become integers, activations stay float.")


@lists_options
@dataclass(frozen=True, kw_only=True)
class QuantizationTransformPass(SaturationOption, ActivationSwitch, WeightOptions, WeightRange, InputQuantizers):
    """Rewrite ``conv(x, w)`` as ``conv(fq(x), fq(w))`` for every op listed that has a weight.

    ``saturation_safe`` keeps pairs of weights from overflowing on processors without VNNI; see
    `quaver.quantizers.saturation`. With the quantizers switched off the program computes what it did before. Declines an op
    whose scope holds a skip pattern, whose weight depends on the input, or whose input is not a float tensor. A weight that
    the model computes from its parameters (pruned, normed, standardised) is rounded behind what computes it.
    """

    quantizable_op_type: str | tuple[str, ...] | list[str] = like(
        InputQuantizers, "quantizable_op_type", default=("conv2d", "depthwise_conv2d", "mul"), rule=names(OP_TYPES)
    )
    weight_quantize_func: Any = option(None, anything(), "Your own quantizer of weights.")
    weight_preprocess_func: Any = option(None, anything(), "What stands in front of a quantizer of weights.")
    optimizer_func: Any = option(None, anything(), "What makes the optimizer of the quantizers' parameters.")

    @cached_property
    def needs_saturation_safety(self) -> bool:
        """Whether weights are kept from overflowing 16 bits: only 8-bit activations of some engines come that far."""
        could_overflow = self.has_8_bit_activations and self.engine.saturates
        return self.saturation_safe and self.quantize_activations and could_overflow

    def weight_options(self, op: Op) -> Options:
        """What the quantizer of an op's weight is made from."""
        return self._weight_options | {"bits": self.bits_for(op)[0]}

    @cached_property
    def _weight_options(self) -> Options:
        options = self.options(self.weight_quantize_type, self.weight_quantize_func, self.weight_preprocess_func)
        return options | {"pairs": True} if self.needs_saturation_safety else options

    def rewrite(self, program: Program) -> Program:
        """Quantizers where `plan` says."""
        prepared = super().rewrite(program)
        prepared.optimizer_func = self.optimizer_func or program.optimizer_func
        return prepared

    def plan(self, ops: Ops, planned: Plan) -> tuple[Plan, dict[str, Reason]]:
        """The weight and every input of the listed ops."""
        plan: Plan = {}
        declined: dict[str, Reason] = {}
        for name, op in ops[EVAL].items():
            if op.type not in self.quantizable_op_type:
                continue
            if why := self.skipped_by(op):
                declined[name] = why
            elif op.weight is None:
                if op.type == "matmul" and not reads_parameter(op.node):
                    declined[name] = Because("both operands are activations: AddQuantDequantPass takes those")
                elif op.type == "matmul":
                    declined[name] = Because("its weight is not a matrix on the right-hand side")
                else:
                    declined[name] = Because("its weight is computed from the input, so it is another for each")
            elif not is_fixed(op.weight):
                declined[name] = Because("its weight is another each time it is computed, with the same input, too")
            elif unfit := unquantizable(op, twin := ops[TRAIN].get(name)):
                declined[name] = unfit
            elif twin is not None and twin.weight is None:
                declined[name] = Because("its weight is computed from the input in training")
            elif op.type in CONVOLUTIONS and is_unbatched(op.node):
                declined[name] = Because("its input has no batch dimension")
            else:
                plan[name] = OpPlan(
                    self.weight_options(op), {0: self.input_options(op)} if self.quantize_activations else {}
                )
        return plan, declined


def is_unbatched(node: fx.Node) -> bool:
    """Whether a convolution reads a single image: channels are then another axis of its output."""
    image, weight = node.args[:2]
    ranks = rank_of(image), rank_of(weight)
    return None not in ranks and ranks[0] != ranks[1]
