"""Options by name, checked all at once."""

from quaver.config.qat_config import QATConfig
from quaver.config.quant_config import ACTIVATION_TYPES, WEIGHT_TYPES, QuantConfig

__all__ = ["ACTIVATION_TYPES", "WEIGHT_TYPES", "QATConfig", "QuantConfig"]
