"""A histogram as small as a word."""

import math
from dataclasses import dataclass

from quaver.analysis.findings import TensorStatistics

WIDTH, HEIGHT, BARS = 88, 20, 44


@dataclass(frozen=True)
class Sparkline:
    """The paths of a picture of ``width`` times ``height``: an area for the counts, lines for the ends of the range."""

    area: str
    threshold_lines: str
    width: int = WIDTH
    height: int = HEIGHT


def sparkline(tensor: TensorStatistics) -> Sparkline:
    """The spread of a tensor, counts on a logarithmic scale, with its threshold as a line."""
    spread = tensor.histogram
    size = max(-(-len(spread.counts) // BARS), 1)
    counts = [sum(spread.counts[first : first + size]) for first in range(0, len(spread.counts), size)]
    top = math.log1p(max(counts)) or 1.0
    step = WIDTH / len(counts)
    heights = [HEIGHT - 1 - (HEIGHT - 2) * math.log1p(count) / top for count in counts]
    area = f"M0 {HEIGHT - 1}" + "".join(f"V{height:.1f}h{step:.2f}" for height in heights) + f"V{HEIGHT - 1}Z"
    thresholds = [tensor.threshold] + ([-tensor.threshold] if tensor.signed else [])
    places = [WIDTH * (threshold - spread.start) / (spread.end - spread.start) for threshold in thresholds]
    return Sparkline(area, "".join(f"M{place:.1f} 0V{HEIGHT}" for place in places if 0 <= place <= WIDTH))
