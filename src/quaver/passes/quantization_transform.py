"""The first pass: quantizers for the weights and inputs of convolutions, linear layers and their like."""

from dataclasses import dataclass
from typing import Any, ClassVar

from quaver.config.check import Rule, boolean, check, names, one_of, rate, texts, whole
from quaver.config.quant_config import ACTIVATION_TYPES, BITS_RULE, WEIGHT_TYPES
from quaver.operators import WEIGHTED, activation_inputs, weight_of
from quaver.passes.base import Pass
from quaver.passes.placement import ops_by_name, place, strip
from quaver.passes.wishes import is_float, quantizer_options, skipped_by
from quaver.program import EVAL, OpPlan, Program, Stage
from quaver.targets import TARGETS

OP_TYPES = WEIGHTED | {"matmul"}
RULES: dict[str, Rule] = {
    "quantizable_op_type": names(OP_TYPES),
    "skip_pattern": texts(),
    "weight_quantize_type": one_of(*WEIGHT_TYPES),
    "activation_quantize_type": one_of(*ACTIVATION_TYPES),
    "weight_bits": BITS_RULE,
    "activation_bits": BITS_RULE,
    "window_size": whole(1),
    "moving_rate": rate(),
    "quantize_activations": boolean(),
    "pass_through": boolean(),
    "target": one_of(*TARGETS),
}


@dataclass(frozen=True, kw_only=True)
class QuantizationTransformPass(Pass):
    """Rewrite ``conv(x, w)`` as ``conv(fq(x), fq(w))`` for every op listed that has a weight.

    With the quantizers switched off the program computes what it did before. Declines an op whose scope holds a skip
    pattern, whose weight is computed rather than stored, or whose input is not a float tensor.
    """

    needs: ClassVar = (Stage.FLOAT, Stage.PREPARED)
    otherwise: ClassVar = "Quantizers go into the float program, before it is trained and frozen."

    quantizable_op_type: tuple[str, ...] | list[str] = ("conv2d", "depthwise_conv2d", "mul")
    skip_pattern: str | tuple[str, ...] | list[str] = ("skip_quant",)
    weight_quantize_type: str = "channel_wise_abs_max"
    activation_quantize_type: str = "moving_average_abs_max"
    weight_bits: int = 8
    activation_bits: int = 8
    window_size: int = 10000
    moving_rate: float = 0.9
    quantize_activations: bool = True
    pass_through: bool = False
    target: str = "openvino"
    weight_quantize_func: Any = None
    act_quantize_func: Any = None
    weight_preprocess_func: Any = None
    act_preprocess_func: Any = None
    optimizer_func: Any = None

    def __post_init__(self) -> None:
        check(type(self).__name__, {key: getattr(self, key) for key in RULES}, RULES)

    def rewrite(self, program: Program) -> Program:
        """Wish for the weight and every input of the listed ops."""
        of_weight = quantizer_options(
            self, self.weight_quantize_type, self.weight_bits, self.weight_quantize_func, self.weight_preprocess_func
        )
        of_input = quantizer_options(
            self, self.activation_quantize_type, self.activation_bits, self.act_quantize_func, self.act_preprocess_func
        )
        plan: dict[str, OpPlan] = {}
        declined: dict[str, str] = {}
        for name, node in ops_by_name(strip(program.graphs[EVAL])).items():
            op = node.meta["op"]
            if op.type not in self.quantizable_op_type:
                continue
            skipped = skipped_by(op, self.skip_pattern)
            if skipped:
                declined[name] = skipped
            elif weight_of(node, op.type) is None:
                if op.type == "matmul":
                    declined[name] = "both operands are activations: AddQuantDequantPass takes those"
                else:
                    declined[name] = "its weight is computed by the model, not a parameter of it"
            elif not is_float(activation_inputs(node)):
                declined[name] = "its input is not a floating-point tensor"
            else:
                plan[name] = OpPlan(of_weight, {0: of_input} if self.quantize_activations else {})
        prepared = place(program, plan, declined, unsigned=TARGETS[self.target].unsigned)
        prepared.optimizer_func = self.optimizer_func or program.optimizer_func
        return prepared
