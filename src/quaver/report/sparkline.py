"""A histogram as small as a word."""

import math

from quaver.analysis.records import TensorStatistics
from quaver.report.html import Html, tag

WIDTH, HEIGHT, BARS = 88, 20, 44


def sparkline(tensor: TensorStatistics) -> Html:
    """The spread of a tensor, counts on a logarithmic scale, with its threshold as a line."""
    spread = tensor.histogram
    size = max(-(-len(spread.counts) // BARS), 1)
    counts = [sum(spread.counts[first : first + size]) for first in range(0, len(spread.counts), size)]
    top = math.log1p(max(counts)) or 1.0
    step = WIDTH / len(counts)
    heights = [HEIGHT - 1 - (HEIGHT - 2) * math.log1p(count) / top for count in counts]
    path = f"M0 {HEIGHT - 1}" + "".join(f"V{height:.1f}h{step:.2f}" for height in heights) + f"V{HEIGHT - 1}Z"
    marks = [tensor.threshold] + ([-tensor.threshold] if tensor.signed else [])
    places = [WIDTH * (mark - spread.start) / (spread.end - spread.start) for mark in marks]
    lines = "".join(f"M{place:.1f} 0V{HEIGHT}" for place in places if 0 <= place <= WIDTH)
    return tag(
        "svg",
        tag("path", d=path, class_="area"),
        lines and tag("path", d=lines, class_="mark"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        class_="spark",
        aria_hidden="true",
    )
