"""Quantizers by the names of their range rules, and for a tensor as a pass or `quaver.QAT` asks for it."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from quaver.operators import channel_axis, saturation_axis_of
from quaver.quantizers import RANGE_RULES
from quaver.quantizers.custom import CustomQuantizer, as_module
from quaver.quantizers.observer import Observer
from quaver.quantizers.pact import PACT
from quaver.quantizers.quantizer import Quantizer

KINDS: dict[str, type[Quantizer]] = {rule.quantizer.kind: rule.quantizer for rule in RANGE_RULES.values()}
KINDS[Observer.kind] = Observer

Make = Callable[[str, dict[str, Any]], Quantizer]


def build(kind: str, *, preprocess: str | None = None, **options: Any) -> Quantizer:
    """A quantizer by the name of its range rule, behind PACT if ``preprocess`` says so.

    >>> build("range_abs_max", bits=4, window_size=100)
    RangeAbsMax(bits=4, signed=True, narrow=True, pass_through=False, tensors=1, window_size=100)
    """
    quantizer = KINDS[kind](**options)
    if preprocess is not None:
        quantizer.preprocess = {"PACT": PACT}[preprocess]()
        quantizer.made_of = (None, preprocess)
    return quantizer


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


def make_for_weight(
    tensor: str, options: dict[str, Any], weight: Tensor, op_type: str, groups: int, make: Make = make
) -> Quantizer:
    """The quantizer of an op's weight, along the axes of the op's type; those that begin with a range get the weight's."""
    own: dict[str, Any] = {}
    if options.get("pairs"):
        own["pairs"] = saturation_axis_of(op_type, tuple(weight.shape), groups)
    if "axis" in options:
        own["axis"] = channel_axis(op_type)
    quantizer = make(tensor, options | own)
    if "axis" in own or options.get("kind") == "learned_step":
        quantizer.begin(weight.detach())
    return quantizer
