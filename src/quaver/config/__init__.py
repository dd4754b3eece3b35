"""Options by name, checked all at once."""

from quaver.config.qat_config import QATConfig
from quaver.config.quant_config import QuantConfig
from quaver.config.quantization_options import ACTIVATION_TYPES, WEIGHT_TYPES

__all__ = ["ACTIVATION_TYPES", "WEIGHT_TYPES", "QATConfig", "QuantConfig"]
