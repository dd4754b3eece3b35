"""What an analysis found: plain records, one per tensor, per weight and per layer."""

from dataclasses import dataclass

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)
BINS = 96
"""Bins of a histogram that is kept."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How the values of a tensor are spread: ``counts`` in bins of one width from ``start`` to ``end``."""

    start: float
    end: float
    counts: list[int]


@dataclass(frozen=True, kw_only=True)
class TensorStatistics:
    """An activation over all batches.

    ``quantizer`` and ``slot`` say which quantizer rounds it, and which of its tensors this is, where several share a range;
    ``rounded`` is False for a tensor that is only observed. ``moving_max`` is the moving average of max|x| over the
    batches, ``largest`` the true maximum of |x|, ``percentiles`` are of |x|. ``threshold`` is the range that ``clipped``
    (the share of values that saturate: more than half a step beyond it) and ``sqnr_db`` (signal to rounding noise; None: no
    noise) are for: the quantizer's own, or ``moving_max`` where it has seen no data. ``best_threshold`` has the least
    squared error.
    """

    name: str
    quantizer: str
    slot: int
    rounded: bool
    bits: int
    signed: bool
    threshold: float
    moving_max: float
    largest: float
    smallest: float
    best_threshold: float
    percentiles: dict[str, float]
    zeros: float
    clipped: float
    sqnr_db: float | None
    not_finite: int
    histogram: Spread

    def figure(self, by: str) -> float:
        """What a range can start from: one of the thresholds by its name, or a percentile (``p99``).

        A percentile can be 0, of a tensor that is nearly all zeros; no range is, and the largest value stands in.
        """
        value: float = (self.percentiles[by[1:]] or self.largest) if by.startswith("p") else getattr(self, by)
        return value


@dataclass(frozen=True, kw_only=True)
class WeightStatistics:
    """A weight. ``thresholds`` are the smallest and the largest of its channels; the other fields are a tensor's.

    ``bounded`` is the share of its integers that ``saturation_safe`` keeps smaller than rounding would make them.
    ``not_finite`` counts values that are NaN or Inf, which the figures leave out.
    """

    name: str
    bits: int
    size: int
    channels: int
    thresholds: list[float]
    largest: float
    percentiles: dict[str, float]
    zeros: float
    clipped: float
    bounded: float
    sqnr_db: float | None
    histogram: Spread
    not_finite: int = 0


@dataclass(frozen=True, kw_only=True)
class Score:
    """How good a network was on the images of the sensitivity analysis.

    ``accuracy`` is top-1, or without labels the share of images with the float network's class; None where the output is no
    row of logits. ``sqnr_db`` compares the output with the float network's; None: equal.
    """

    accuracy: float | None
    sqnr_db: float | None


@dataclass(frozen=True, kw_only=True)
class LayerStatistics:
    """A quantized layer: the tensors it reads, and what rounding them costs.

    ``sqnr_db`` is signal to noise of its result, from that of its inputs and of its weight: the noise powers, relative to
    their signals, add up. A frozen program's weights have no noise that is known, and there it is the inputs' alone.
    ``only`` scores the network with only this layer quantized, ``without`` with all others.
    """

    name: str
    type: str
    scope: str
    inputs: list[str]
    weight: str | None
    activation_bits: int | None
    weight_bits: int | None
    input_sqnr_db: float | None
    weight_sqnr_db: float | None
    sqnr_db: float | None
    only: Score | None
    without: Score | None


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Which layers to leave float so that accuracy falls by at most ``target_drop``; ``reached``: whether that is enough.

    ``not_quant_pattern`` is the option that leaves them float, and what is float already; ``layers`` are the ops that it
    catches anew.
    """

    target_drop: float
    layers: list[str]
    not_quant_pattern: list[str]
    score: Score
    reached: bool


@dataclass(frozen=True, kw_only=True)
class SensitivitySummary:
    """What the scores of the layers are to be compared with: the float network and the one with every layer quantized.

    ``left_out`` counts images with NaN or Inf, which were not drawn.
    """

    images: int
    measure: str
    floating: Score
    quantized: Score
    left_out: int = 0
