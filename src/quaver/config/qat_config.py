"""`QATConfig`: how `quaver.QAT` quantizes a live model."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from quaver.config.check import Rule, boolean, check, names
from quaver.config.layer_bits import LayerBits, as_pairs
from quaver.config.quant_config import RULES as GRAPH_RULES
from quaver.errors import ConfigError

LAYER_TYPES = {
    "Conv1D": "Conv1d",
    "Conv2D": "Conv2d",
    "Conv2DTranspose": "ConvTranspose2d",
    "Conv1d": "Conv1d",
    "Conv2d": "Conv2d",
    "ConvTranspose2d": "ConvTranspose2d",
    "Linear": "Linear",
    "AvgPool2d": "AvgPool2d",
    "AdaptiveAvgPool2d": "AdaptiveAvgPool2d",
    "MaxPool2d": "MaxPool2d",
}
"""The names of layers, PyTorch's and the reference's, and PyTorch's for each."""

_SHARED = (
    "weight_preprocess_type",
    "activation_preprocess_type",
    "weight_quantize_type",
    "activation_quantize_type",
    "weight_bits",
    "activation_bits",
    "layer_bits",
    "dtype",
    "window_size",
    "moving_rate",
    "not_quant_pattern",
    "quant_weight_only",
    "pass_through",
    "saturation_safe",
)
RULES: dict[str, Rule] = {key: GRAPH_RULES[key] for key in _SHARED} | {
    "quantizable_layer_type": names(LAYER_TYPES),
    "fuse_conv_bn": boolean(),
}


@dataclass(frozen=True, kw_only=True)
class QATConfig:
    """How a live model is quantized; the keys that `QuantConfig` has too mean the same here.

    ``quantizable_layer_type``: the layers to quantize, by PyTorch's names or the reference's (``Conv2D``); those of
    `quaver.nn` always are. ``not_quant_pattern``: layers whose name contains one of these stay float. ``fuse_conv_bn`` is
    accepted and changes nothing: batch norm always goes into the weight's step and the bias when the model is written.

    >>> QATConfig(quantizable_layer_type=["Conv2D"]).layer_types
    ('Conv2d',)
    """

    weight_preprocess_type: str | None = None
    activation_preprocess_type: str | None = None
    weight_quantize_type: str = "channel_wise_abs_max"
    activation_quantize_type: str = "moving_average_abs_max"
    weight_bits: int = 8
    activation_bits: int = 8
    layer_bits: LayerBits = ()
    dtype: str = "int8"
    window_size: int = 10000
    moving_rate: float = 0.9
    not_quant_pattern: str | list[str] | tuple[str, ...] = ("skip_quant",)
    quant_weight_only: bool = False
    pass_through: bool = False
    saturation_safe: bool = True
    quantizable_layer_type: list[str] | tuple[str, ...] = ("Conv1D", "Conv2D", "Conv2DTranspose", "Linear")
    fuse_conv_bn: bool = False

    def __post_init__(self) -> None:
        check("QATConfig", asdict(self), RULES)
        object.__setattr__(self, "layer_bits", as_pairs(self.layer_bits))

    @classmethod
    def of(cls, config: "QATConfig | Mapping[str, Any] | None") -> "QATConfig":
        """A config from a dict, from a config, or from nothing."""
        if isinstance(config, cls):
            return config
        if not isinstance(config, Mapping | None):
            raise ConfigError(f"config: takes a dict or a QATConfig, not {type(config).__name__}.")
        check("config", config or {}, RULES)
        return cls(**(config or {}))

    @property
    def layer_types(self) -> tuple[str, ...]:
        """PyTorch's names of the layers to quantize."""
        return tuple(LAYER_TYPES[name] for name in self.quantizable_layer_type)

    @property
    def patterns(self) -> tuple[str, ...]:
        """``not_quant_pattern`` as a tuple."""
        return (self.not_quant_pattern,) if isinstance(self.not_quant_pattern, str) else tuple(self.not_quant_pattern)


assert {field.name for field in fields(QATConfig)} == set(RULES)
