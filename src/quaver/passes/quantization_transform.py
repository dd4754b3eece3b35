"""The first pass: quantizers for the weights and inputs of convolutions, linear layers and their like."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import fx

from quaver.config.check import boolean, names, one_of
from quaver.config.layer_bits import as_pairs
from quaver.config.quant_config import BITS_RULE, WEIGHT_TYPES
from quaver.graph.nodes import Op, is_parameter, op_of, rank_of
from quaver.operators import CONVOLUTIONS, WEIGHTED, activation_inputs, weight_of
from quaver.passes.base import Pass
from quaver.passes.placement import Asked, Ops, place
from quaver.passes.wishes import InputQuantizers, skipped_by, unquantizable
from quaver.program import EVAL, TRAIN, OpPlan, Program, Stage
from quaver.program.placements import Options
from quaver.targets import TARGETS

OP_TYPES = WEIGHTED | {"matmul"}


@dataclass(frozen=True, kw_only=True)
class QuantizationTransformPass(InputQuantizers, Pass):
    """Rewrite ``conv(x, w)`` as ``conv(fq(x), fq(w))`` for every op listed that has a weight.

    ``saturation_safe`` keeps pairs of weights from overflowing on processors without VNNI; see
    `quaver.quantizers.saturation`. With the quantizers switched off the program computes what it did before. Declines an op
    whose scope holds a skip pattern, whose weight is computed rather than stored, or whose input is not a float tensor.
    """

    needs: ClassVar = (Stage.FLOAT, Stage.PREPARED)
    otherwise: ClassVar = "Quantizers go into the float program, before it is trained and frozen."

    own_rules: ClassVar = {
        "quantizable_op_type": names(OP_TYPES),
        "weight_quantize_type": one_of(*WEIGHT_TYPES),
        "weight_bits": BITS_RULE,
        "quantize_activations": boolean(),
        "saturation_safe": boolean(),
    }

    quantizable_op_type: tuple[str, ...] | list[str] = ("conv2d", "depthwise_conv2d", "mul")
    weight_quantize_type: str = "channel_wise_abs_max"
    weight_bits: int = 8
    quantize_activations: bool = True
    saturation_safe: bool = True
    weight_quantize_func: Any = None
    weight_preprocess_func: Any = None
    optimizer_func: Any = None

    @property
    def bounds_pairs(self) -> bool:
        """Whether weights are kept from overflowing 16 bits: only 8-bit activations of some engines come that far."""
        return (
            self.saturation_safe
            and self.quantize_activations
            and 8 in (self.activation_bits, *(activation for _, (_, activation) in as_pairs(self.layer_bits)))
            and TARGETS[self.target].saturates
        )

    def weight_options(self, op: Op) -> Options:
        """What the quantizer of an op's weight is made from."""
        functions = (self.weight_quantize_func, self.weight_preprocess_func)
        options = self.options(self.weight_quantize_type, self.bits_for(op)[0], *functions)
        return options | {"pairs": True} if self.bounds_pairs else options

    def rewrite(self, program: Program) -> Program:
        """Quantizers where `plan` says."""
        prepared = place(program, self)
        prepared.optimizer_func = self.optimizer_func or program.optimizer_func
        return prepared

    def plan(self, ops: Ops, planned: dict[str, OpPlan]) -> Asked:
        """The weight and every input of the listed ops."""
        plan: dict[str, OpPlan] = {}
        declined: dict[str, str] = {}
        for name, node in ops[EVAL].items():
            op = op_of(node)
            if op.type not in self.quantizable_op_type:
                continue
            skipped = skipped_by(op, self.skip_pattern)
            if skipped:
                declined[name] = skipped
            elif weight_of(node, op.type) is None:
                if op.type == "matmul" and not any(is_parameter(value) for value in node.all_input_nodes):
                    declined[name] = "both operands are activations: AddQuantDequantPass takes those"
                elif op.type == "matmul":
                    declined[name] = "its weight is not a matrix on the right-hand side"
                else:
                    declined[name] = "its weight is computed by the model, not a parameter of it"
            elif reason := unquantizable(activation_inputs(node), ops[TRAIN].get(name)):
                declined[name] = reason
            elif op.type in CONVOLUTIONS and is_unbatched(node):
                declined[name] = "its input has no batch dimension"
            else:
                plan[name] = OpPlan(
                    self.weight_options(op), {0: self.input_options(op)} if self.quantize_activations else {}
                )
        return plan, declined


def is_unbatched(node: fx.Node) -> bool:
    """Whether a convolution reads a single image: channels are then another axis of its output."""
    image, weight = node.args[:2]
    ranks = [rank_of(value) for value in (image, weight)]  # type: ignore[union-attr]
    return None not in ranks and ranks[0] != ranks[1]
