"""`QuantConfig`: how a model is to be quantized."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from quaver.config.check import Rule, boolean, check, names, one_of, one_of_or_none, rate, texts, whole
from quaver.config.layer_bits import LayerBits, as_pairs, layer_bits
from quaver.engines import DEFAULT, ENGINES
from quaver.errors import ConfigError
from quaver.grid import BITS
from quaver.operators import OP_TYPES

WEIGHT_TYPES = (
    "abs_max",
    "channel_wise_abs_max",
    "range_abs_max",
    "moving_average_abs_max",
    "learned_step",
    "channel_wise_learned_step",
)
ACTIVATION_TYPES = ("abs_max", "range_abs_max", "moving_average_abs_max", "learned_step")

BITS_RULE = whole(BITS[0], BITS[-1])
RULES: dict[str, Rule] = {
    "weight_quantize_type": one_of(*WEIGHT_TYPES),
    "activation_quantize_type": one_of(*ACTIVATION_TYPES),
    "weight_preprocess_type": one_of_or_none("PACT"),
    "activation_preprocess_type": one_of_or_none("PACT"),
    "weight_bits": BITS_RULE,
    "activation_bits": BITS_RULE,
    "layer_bits": layer_bits(),
    "not_quant_pattern": texts(),
    "quantize_op_types": names(OP_TYPES),
    "dtype": one_of("int8"),
    "window_size": whole(1),
    "moving_rate": rate(),
    "quant_weight_only": boolean(),
    "pass_through": boolean(),
    "saturation_safe": boolean(),
    "target": one_of(*ENGINES),
}


@dataclass(frozen=True, kw_only=True)
class QuantConfig:
    """How a model is to be quantized; every key has a default.

    ``weight_preprocess_type`` and ``activation_preprocess_type``: None, or ``PACT``, a learned clip in front of every
    quantizer. ``layer_bits``: other bits for some layers, ``{"stem": 8, "head": (8, 4)}``: a part of an op's scope, and its
    bits, or those of its weight and of its inputs. ``not_quant_pattern``: ops whose scope contains one of these stay float
    (``^`` and ``$`` are its two ends: ``^head$`` is ``head`` alone).
    ``quantize_op_types``: what is quantized; by default all that ``target`` runs in int8. ``quant_weight_only``: weights
    become integers, activations stay float.
    ``pass_through``: gradients pass a quantizer even where it saturates. ``saturation_safe``: filters whose
    products would overflow 16 bits on processors without VNNI get a larger step, so that every processor gives the same;
    matrix products of two activations, which cannot be bounded, stay float unless ``quantize_op_types`` names them.

    >>> QuantConfig(weight_bits=4).weight_quantize_type
    'channel_wise_abs_max'
    """

    weight_quantize_type: str = "channel_wise_abs_max"
    activation_quantize_type: str = "moving_average_abs_max"
    weight_preprocess_type: str | None = None
    activation_preprocess_type: str | None = None
    weight_bits: int = 8
    activation_bits: int = 8
    layer_bits: LayerBits = ()
    not_quant_pattern: str | list[str] | tuple[str, ...] = ("skip_quant",)
    quantize_op_types: list[str] | tuple[str, ...] = DEFAULT.op_types
    dtype: str = "int8"
    window_size: int = 10000
    moving_rate: float = 0.9
    quant_weight_only: bool = False
    pass_through: bool = False
    saturation_safe: bool = True
    target: str = DEFAULT.name

    def __post_init__(self) -> None:
        check("QuantConfig", asdict(self), RULES)
        for name in ("not_quant_pattern", "quantize_op_types"):
            if isinstance(getattr(self, name), list):  # the caller's own, which may change
                object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "layer_bits", as_pairs(self.layer_bits))

    @classmethod
    def of(cls, config: "QuantConfig | Mapping[str, Any] | None") -> "QuantConfig":
        """A config from a dict, from a config, or from nothing."""
        if config is None:
            return cls()
        if isinstance(config, cls):
            return config
        if not isinstance(config, Mapping):
            raise ConfigError(
                f"config: takes a dict or a QuantConfig, not {type(config).__name__}. Example inputs go by their name: "
                "example_inputs=(x,)."
            )
        check("config", config, RULES)
        return cls(**config)

    @property
    def patterns(self) -> tuple[str, ...]:
        """``not_quant_pattern`` as a tuple."""
        return (self.not_quant_pattern,) if isinstance(self.not_quant_pattern, str) else tuple(self.not_quant_pattern)

    @property
    def leaves_products_float(self) -> bool:
        """Whether matrix products of two activations stay float: they could overflow, and nobody asked for them."""
        target = ENGINES[self.target]
        bits = (self.activation_bits, *(activation for _, (_, activation) in as_pairs(self.layer_bits)))
        could_overflow = self.saturation_safe and 8 in bits and target.saturates
        return could_overflow and tuple(self.quantize_op_types) == target.op_types


def _refuse_unknown_keys(cls: type[QuantConfig]) -> None:
    """Let ``QuantConfig(weigth_bits=8)`` answer like a dict does: all problems, and the nearest key."""
    plain = cls.__init__

    def __init__(self: QuantConfig, **options: Any) -> None:  # noqa: N807
        check("QuantConfig", options, RULES)
        runtime = ENGINES[options.get("target", DEFAULT.name)]
        plain(self, **({"quantize_op_types": runtime.op_types} | options))

    __init__.__wrapped__ = plain  # type: ignore[attr-defined]  # keeps the signature that help() and editors show
    cls.__init__ = __init__  # type: ignore[method-assign]


_refuse_unknown_keys(QuantConfig)
assert {field.name for field in fields(QuantConfig)} == set(RULES)
