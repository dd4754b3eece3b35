"""Program → Program, one idea per pass. The five public ones, in the order of the journey."""

from quaver.passes.quantization_transform import QuantizationTransformPass  # isort: skip
from quaver.passes.add_quant_dequant import AddQuantDequantPass  # isort: skip
from quaver.passes.quantization_freeze import QuantizationFreezePass  # isort: skip
from quaver.passes.convert_to_int8 import ConvertToInt8Pass  # isort: skip
from quaver.passes.transform_for_mobile import TransformForMobilePass  # isort: skip

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "QuantizationFreezePass",
    "QuantizationTransformPass",
    "TransformForMobilePass",
]
