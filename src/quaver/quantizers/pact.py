"""PACT: a clip in front of a quantizer, whose limit is learned."""

import copy
import math
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from quaver.checking import nearest
from quaver.errors import ConfigError, QuaverWarning
from quaver.quantizers.dtype import StaysFloat32

START = 20.0
"""Where a limit starts that no analysis knows better."""


class PACT(StaysFloat32):
    """``x − relu(x − u) + relu(−u − x)``: outliers are cut off at ±u, and u is learned from what is lost by it.

    Give it as ``act_preprocess_func`` or ``weight_preprocess_func``: every tensor gets one of its own. ``u`` starts at
    ``threshold``, or at what ``thresholds`` says of the tensor: an analysis' maxima, by the tensors' names. Backward: 1 to
    what lies inside, 0 outside; to ``u`` the sum of what arrives outside, with the sign of the side.

    It only shapes a range: a quantizer behind it never has one beyond u, so in evaluation its saturation is the clip, and
    there is nothing left of it to deploy.

    >>> clip = PACT(2.0)
    >>> clip(torch.tensor([-5.0, 1.0, 3.0])).detach()
    tensor([-2.,  1.,  2.])
    """

    def __init__(self, threshold: float = START, thresholds: Mapping[str, float] | None = None) -> None:
        super().__init__()
        if not isinstance(thresholds, Mapping | None):
            raise ConfigError(
                f"PACT: thresholds={thresholds!r}: takes a dict, from tensors' names to where their clips start."
            )
        self.thresholds = dict(thresholds or {})
        for name, value in {"threshold": threshold, **self.thresholds}.items():
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise ConfigError(f"PACT: {name}={value!r}: a clip starts at a number above 0.")
        self.pact_threshold = nn.Parameter(torch.tensor(float(threshold)))

    def for_tensor(self, name: str) -> "PACT":
        """A clip of the tensor's own, started where the analysis says."""
        own = copy.deepcopy(self)
        own.thresholds = {}
        if name in self.thresholds:
            own.pact_threshold.data.fill_(self.thresholds[name])
        return own

    @property
    def limit(self) -> Tensor:
        """u, which counts by its size."""
        return self.pact_threshold.abs()

    def forward(self, x: Tensor) -> Tensor:
        """``x`` between −u and u."""
        limit = self.limit.to(x.dtype)
        return torch.clamp(x, -limit, limit)  # the formula above, without its rounding

    def extra_repr(self) -> str:
        """The limit, as ``print`` shows it."""
        return f"threshold={self.pact_threshold.item():.4g}"


def warn_of_unknown(function: Any, tensors: Collection[str], stacklevel: int) -> None:
    """Name the thresholds of a PACT that are of none of these tensors, and so start nothing."""
    given = function.thresholds if isinstance(function, PACT) else {}
    unknown = [name for name in given if name not in tensors]
    if unknown:
        hint = nearest(unknown[0], tensors) or f" Here are {', '.join(map(repr, list(tensors)[:3]))} …"
        warnings.warn(
            f"PACT: {len(unknown)} of {len(given)} thresholds are of tensors that are not here, {unknown[0]!r} first, and "
            f"do nothing. Clips that have none start at {function.pact_threshold.item():g}.{hint}",
            QuaverWarning,
            stacklevel=stacklevel + 1,
        )
