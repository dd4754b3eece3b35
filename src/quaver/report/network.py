"""The network as a picture: rows of layers from left to right, coloured by precision, error or time."""

from collections import defaultdict
from dataclasses import dataclass

from quaver.report.gather import Run
from quaver.report.graph_layout import Layout, laid_out
from quaver.report.layer_rows import Row
from quaver.report.number_format import decibels, percent

COLUMNS, STEP, WIDTH, HEIGHT, LANE, MARGIN, GAP = 18, 60, 42, 22, 32, 26, 22
ERROR_STEPS = (45, 40, 35, 30, 25, 20)
"""Decibels below which a layer's error is of the next colour."""
TIME_STEPS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
"""Shares of the time above which a layer is of the next colour."""

SHORT = {
    "conv2d": "conv",
    "depthwise_conv2d": "dw",
    "conv2d_transpose": "deconv",
    "mul": "linear",
    "elementwise_add": "add",
    "elementwise_sub": "sub",
    "elementwise_mul": "mul",
    "elementwise_div": "div",
    "pool2d": "pool",
    "batch_norm": "bn",
    "hard_swish": "hswish",
    "hard_sigmoid": "hsigm",
    "leaky_relu": "lrelu",
    "interpolate": "resize",
    "transpose": "transp",
    "pixel_shuffle": "shuffle",
}


def error_style(sqnr_db: float) -> str:
    """The class of an error, e0 for the smallest."""
    return f"e{sum(sqnr_db < step for step in ERROR_STEPS)}"


@dataclass(frozen=True)
class Node:
    """A box for a layer, with a link to its row in the table, or a dot for an input, which has none."""

    left: float
    middle: float
    title: str
    link: str = ""
    label: str = ""
    classes: str = ""
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def top(self) -> float:
        """The upper edge of the box."""
        return self.middle - self.height / 2


@dataclass(frozen=True)
class Picture:
    """The network of a run: its size, all edges as one path, and the nodes."""

    run: str
    width: int
    height: int
    edges: str
    nodes: list[Node]


def network(run: Run, rows: list[Row], ids: dict[str, str]) -> Picture | None:
    """The picture, its nodes linked by name to the rows of the table; None without a saved program."""
    if run.program is None:
        return None
    rows_by_name = {row.name: row for row in rows}
    inputs = list(run.program.inputs)
    hosts = {row.name: row.host for row in rows if row.precision == "fused" and row.host in rows_by_name}

    def shown(name: str) -> str:
        """The op that a fused one is part of; through several, if need be."""
        for _ in range(len(hosts)):
            if name not in hosts:
                break
            name = hosts[name]
        return name

    reads: dict[str, dict[str, None]] = {name: {} for name in inputs}
    for op in run.program.ops:
        title = shown(op.name)
        sources = [source for source in map(shown, op.reads) if source != title]
        reads.setdefault(title, {}).update(dict.fromkeys(sources))
    layout = laid_out(_in_order(reads))
    plan = _Plan(layout)
    nodes = [_node(plan, name, rows_by_name.get(name), ids) for name in layout.places]
    return Picture(run.name, plan.width, plan.height, plan.edges(), nodes)


def _in_order(reads: dict[str, dict[str, None]]) -> dict[str, list[str]]:
    """The same in an order in which it can be computed; an op that took in a later one may read what comes behind it."""
    done: dict[str, list[str]] = {}
    for first in reads:
        waiting = [first]
        opened: set[str] = set()
        while waiting:
            name = waiting[-1]
            open_ = [source for source in reads[name] if source in reads and source not in done and source not in opened]
            opened.add(name)
            if open_:
                waiting += open_[:1]
                continue
            waiting.pop()
            done.setdefault(name, [source for source in reads[name] if source in done])
    return done


@dataclass
class _Plan:
    """Coordinates for a layout whose ranks are wrapped into rows."""

    layout: Layout

    def __post_init__(self) -> None:
        places = self.layout.places
        self.columns = min(COLUMNS, max(self.layout.ranks, 1))
        lanes: dict[int, int] = defaultdict(int)
        for place in places.values():
            row = place.rank // self.columns
            lanes[row] = max(lanes[row], place.lane)
        for source, name in self.layout.edges:
            for row in range(places[source].rank // self.columns, (places[name].rank - 1) // self.columns + 1):
                lanes[row] = max(lanes[row], places[source].lane)
        self.tops: list[float] = []
        top = 8.0
        for row in range(max(lanes, default=0) + 1):
            self.tops.append(top)
            top += lanes[row] * LANE + HEIGHT + GAP
        self.height = round(top - GAP + 8)
        self.width = 2 * MARGIN + self.columns * STEP - (STEP - WIDTH)

    def left(self, rank: int) -> float:
        return MARGIN + rank % self.columns * STEP

    def middle(self, rank: int, lane: int) -> float:
        """The height of a lane in the row of a rank."""
        return self.tops[rank // self.columns] + lane * LANE + HEIGHT / 2

    def edges(self) -> str:
        """All edges as one path: along the source's lane, into the reader at the end."""
        parts = []
        for source, name in self.layout.edges:
            begin, end = self.layout.places[source], self.layout.places[name]
            parts.append(f"M{self.left(begin.rank) + WIDTH:g} {self.middle(begin.rank, begin.lane):g}")
            for row in range(begin.rank // self.columns + 1, end.rank // self.columns + 1):
                parts.append(f"H{self.width}M0 {self.middle(row * self.columns, begin.lane):g}")
            bend, x = self.left(end.rank) - (STEP - WIDTH), self.left(end.rank)
            y, target = self.middle(end.rank, begin.lane), self.middle(end.rank, end.lane)
            half = (bend + x) / 2
            parts.append(f"H{x:g}" if y == target else f"H{bend:g}C{half:g} {y:g} {half:g} {target:g} {x:g} {target:g}")
        return "".join(parts)


def _node(plan: _Plan, name: str, row: Row | None, ids: dict[str, str]) -> Node:
    place = plan.layout.places[name]
    left, middle = plan.left(place.rank), plan.middle(place.rank, place.lane)
    if row is None:
        return Node(left, middle, f"input {name}")
    return Node(left, middle, _tooltip(row), ids[name], SHORT.get(row.type, row.type[:7]), _classes(row))


def _classes(row: Row) -> str:
    names = ["node", "p-float" if row.is_float else "p-int8"]
    if row.sqnr_db is not None:
        names.append(error_style(row.sqnr_db))
    if row.share is not None:
        names.append(f"t{sum(row.share > step for step in TIME_STEPS)}")
    return " ".join(names)


def _tooltip(row: Row) -> str:
    lines = [f"{row.name} ({', '.join([row.type, *row.fused])})", row.executed or row.precision]
    if row.bits:
        lines[-1] += f", {row.bits}"
    if row.sqnr_db is not None:
        lines.append(f"signal to noise {decibels(row.sqnr_db)} dB" + ", input only" * row.error_of_input)
    if row.share is not None:
        lines.append(f"{percent(row.share, 1)} of the time")
    if row.reason:
        lines.append(row.reason)
    return "\n".join(lines)


def legend(rows: list[Row]) -> dict[str, list[tuple[str, str]]]:
    """What the colours mean: for each way of colouring that there are figures for, its styles in words."""
    ways = {"precision": [("p-int8", "int8"), ("p-float", "float")]}
    if any(row.sqnr_db is not None for row in rows):
        labels = [f"≥ {ERROR_STEPS[0]} dB", *(f"≥ {step}" for step in ERROR_STEPS[1:]), f"< {ERROR_STEPS[-1]}"]
        ways["error"] = [(f"e{index}", label) for index, label in enumerate(labels)]
    if any(row.share is not None for row in rows):
        labels = [f"≤ {100 * step:g}" for step in TIME_STEPS] + [f"> {100 * TIME_STEPS[-1]:g} % of the time"]
        ways["time"] = [(f"t{index}", label) for index, label in enumerate(labels)]
    return ways
