"""`QATConfig`: how `quaver.QAT` quantizes a live model."""

from dataclasses import dataclass

from quaver.checking import boolean, names, several
from quaver.config.options import lists_options, option
from quaver.config.quantization_options import ConfigOptions

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


@lists_options
@dataclass(frozen=True, kw_only=True)
class QATConfig(ConfigOptions):
    """How a live model is quantized; the keys that `QuantConfig` has too mean the same here.

    Layers are named by PyTorch's names or the reference's (``Conv2D``); those of `quaver.nn` are always quantized. Batch
    norm always goes into the weight's step and the bias when the model is written.

    >>> QATConfig(quantizable_layer_type=["Conv2D"]).layer_types
    ('Conv2d',)
    """

    quantizable_layer_type: str | list[str] | tuple[str, ...] = option(
        ("Conv1D", "Conv2D", "Conv2DTranspose", "Linear"), names(LAYER_TYPES), "The layers to quantize."
    )
    fuse_conv_bn: bool = option(False, boolean(), "Accepted, and changes nothing.")

    @property
    def layer_types(self) -> tuple[str, ...]:
        """PyTorch's names of the layers to quantize."""
        return tuple(LAYER_TYPES[name] for name in several(self.quantizable_layer_type))
