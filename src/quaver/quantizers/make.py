"""A quantizer for a tensor, from the options that a pass or `quaver.QAT` wishes it with."""

from typing import Any

from quaver.quantizers import build
from quaver.quantizers.custom import CustomQuantizer, as_module
from quaver.quantizers.pact import PACT
from quaver.quantizers.quantizer import Quantizer


def make(tensor: str, options: dict[str, Any]) -> Quantizer:
    """What `build` makes of the options; with ``function`` a user's own in its place, with ``preprocess`` one in front."""
    rest = {key: value for key, value in options.items() if key not in ("function", "preprocess")}
    function, preprocess = options.get("function"), options.get("preprocess")
    if function is None:
        quantizer = build(**rest)
    else:  # which grid its values must lie on; the range is its own affair
        grid = ("bits", "axis", "signed", "narrow", "tensors", "pairs")
        quantizer = CustomQuantizer(function, tensor, **{key: rest[key] for key in grid if key in rest})
    if preprocess is not None:
        quantizer.preprocess = as_module(PACT if preprocess == "PACT" else preprocess, tensor)
    quantizer.tensor, quantizer.made_of = tensor, (function, preprocess)
    return quantizer
