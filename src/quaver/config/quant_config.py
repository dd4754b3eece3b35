"""`QuantConfig`: how a model is to be quantized."""

from dataclasses import dataclass
from typing import ClassVar

from quaver.checking import names, several
from quaver.config.options import lists_options, option
from quaver.config.quantization_options import ConfigOptions, TargetOption
from quaver.operators import OP_TYPES

_OF_THE_TARGET = (*TargetOption().engine.op_types,)  # a tuple of its own, so that it can be told from the same one given


@lists_options
@dataclass(frozen=True, kw_only=True)
class QuantConfig(TargetOption, ConfigOptions):
    """How a model is to be quantized; every key has a default.

    ``layer_bits`` names a part of an op's scope, and its bits, or those of its weight and of its inputs; ``^head$`` is
    ``head`` alone, there and in ``not_quant_pattern``. With ``saturation_safe``, filters whose products would overflow 16
    bits on processors without VNNI get a larger step, so that every processor gives the same; matrix products of two
    activations, which cannot be bounded, stay float unless ``quantize_op_types`` names them.

    >>> QuantConfig(weight_bits=4).weight_quantize_type
    'channel_wise_abs_max'
    """

    quantize_op_types: str | list[str] | tuple[str, ...] = option(
        _OF_THE_TARGET, names(OP_TYPES), "What is quantized; by default what the target runs."
    )

    not_this: ClassVar = " Example inputs go by their name: example_inputs=(x,)."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantize_op_types is _OF_THE_TARGET:
            object.__setattr__(self, "quantize_op_types", self.engine.op_types)
        object.__setattr__(self, "quantize_op_types", several(self.quantize_op_types))
        if isinstance(self.not_quant_pattern, list):  # the caller's own, which may change
            object.__setattr__(self, "not_quant_pattern", tuple(self.not_quant_pattern))

    @property
    def leaves_products_float(self) -> bool:
        """Whether matrix products of two activations stay float: they could overflow, and nobody asked for them."""
        could_overflow = self.saturation_safe and self.has_8_bit_activations and self.engine.saturates
        return could_overflow and tuple(self.quantize_op_types) == self.engine.op_types
