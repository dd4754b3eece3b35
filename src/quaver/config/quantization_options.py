"""The options of quantization, each declared once: the configs, the passes, recipes and the command line inherit them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from quaver.checking import NameIn, Rule, boolean, check, one_of, or_none, rate, several, texts, whole
from quaver.config.layer_bits import LayerBits, as_pairs, layer_bits
from quaver.config.options import Checked, option, rules_of
from quaver.config.scopes import CUSTOMARY, warn_of_unmatched
from quaver.engines import DEFAULT, ENGINES, Engine
from quaver.errors import ConfigError
from quaver.grid import BITS
from quaver.quantizers import RANGE_RULES

WEIGHT_TYPES = tuple(RANGE_RULES)
ACTIVATION_TYPES = tuple(name for name, rule in RANGE_RULES.items() if rule.for_activations)
_BITS = whole(BITS[0], BITS[-1])
_PREPROCESS = or_none(one_of("PACT"))
_DTYPE = Rule(
    "int8, which weights are stored as; activations that cannot be negative are uint8 by themselves where the engine has it",
    lambda value: value == "int8",
    ("int8",),
)


@dataclass(frozen=True, kw_only=True)
class ActivationRange:
    """How the range of an activation is found."""

    activation_quantize_type: str = option("moving_average_abs_max", one_of(*ACTIVATION_TYPES), "Range rule of activations.")


@dataclass(frozen=True, kw_only=True)
class ActivationOptions:
    """What else a quantizer of activations is told."""

    activation_bits: int = option(8, _BITS, "Bits of activations.")
    layer_bits: LayerBits = option((), layer_bits(), 'Other bits for some layers, such as {"stem": 8, "head": (8, 4)}.')
    window_size: int = option(10000, whole(1), "range_abs_max: batches that are looked back on.")
    moving_rate: float = option(0.9, rate(), "moving_average_abs_max: how slowly it forgets.")
    pass_through: bool = option(False, boolean(), "Gradients pass a quantizer even where it saturates.")


@dataclass(frozen=True, kw_only=True)
class WeightRange:
    """How the range of a weight is found."""

    weight_quantize_type: str = option("channel_wise_abs_max", one_of(*WEIGHT_TYPES), "Range rule of weights.")


@dataclass(frozen=True, kw_only=True)
class WeightOptions:
    """What else a quantizer of weights is told."""

    weight_bits: int = option(8, _BITS, "Bits of weights.")


@dataclass(frozen=True, kw_only=True)
class SaturationOption:
    """Whether weights are kept from overflowing 16 bits."""

    saturation_safe: bool = option(True, boolean(), "The same result on processors without VNNI.")


@dataclass(frozen=True, kw_only=True)
class TargetOption:
    """The engine that quantizers are placed for."""

    target: str = option(DEFAULT.name, NameIn(ENGINES), "The engine that decides where quantizers go.")

    @property
    def engine(self) -> Engine:
        """What the target can execute."""
        return ENGINES[self.target]


@dataclass(frozen=True, kw_only=True)
class SharedOptions(SaturationOption, WeightOptions, ActivationOptions):
    """What the configs and a recipe have in common, under the same names."""

    not_quant_pattern: str | list[str] | tuple[str, ...] = option(
        (CUSTOMARY,), texts(), "Ops with one of these in their scope stay float; ^ and $ are the ends of the scope."
    )
    quant_weight_only: bool = option(False, boolean(), "Weights become integers, activations stay float.")


@dataclass(frozen=True, kw_only=True)
class QuantizerOptions(Checked, ActivationOptions, ActivationRange):
    """What the configs and the passes have in common."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "layer_bits", as_pairs(self.layer_bits) if self.layer_bits else ())

    @property
    def has_8_bit_activations(self) -> bool:
        """Whether any layer has: only these come near 16 bits when they are multiplied."""
        return 8 in (self.activation_bits, *(bits for _, bits in dict(self.layer_bits).values()))


@dataclass(frozen=True, kw_only=True)
class ConfigOptions(SharedOptions, WeightRange, QuantizerOptions):
    """What the two configs have in common."""

    weight_preprocess_type: str | None = option(None, _PREPROCESS, "PACT: a learned clip in front of a weight's quantizer.")
    activation_preprocess_type: str | None = option(None, _PREPROCESS, "PACT: a learned clip in front of an activation's.")
    dtype: str = option("int8", _DTYPE, "What is stored.")

    not_this: ClassVar[str] = ""
    """What else to say where something other than a config was given."""

    @classmethod
    def of(cls, config: Self | Mapping[str, Any] | None) -> Self:
        """A config from a dict, from a config, or from nothing."""
        if isinstance(config, cls):
            return config
        if not isinstance(config, Mapping | None):
            raise ConfigError(f"config: takes a dict or a {cls.__name__}, not {type(config).__name__}.{cls.not_this}")
        if not config:
            return cls()
        check("config", config, rules_of(cls))
        return cls(**config)

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """``not_quant_pattern`` as a tuple."""
        return several(self.not_quant_pattern)

    def warn_of_unmatched(self, scopes: Iterable[str], stacklevel: int) -> None:
        """Say which patterns are in no scope of a model: they change nothing."""
        all_scopes = set(scopes)
        warn_of_unmatched("not_quant_pattern", self.patterns, all_scopes, stacklevel + 1)
        warn_of_unmatched("layer_bits", dict(self.layer_bits), all_scopes, stacklevel + 1)
