"""Which layers suffer from rounding: the network with only one layer quantized, and with all but one."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from quaver.analysis.findings import LayerStatistics, Proposal, Score
from quaver.analysis.interpreter import WatchingInterpreter
from quaver.analysis.sites import Site
from quaver.analysis.tensor_statistics import decibels
from quaver.config.scopes import contains
from quaver.errors import InputError
from quaver.graph.copying import copy_graph
from quaver.graph.nodes import Op, is_fake_quant, ops_by_name, ops_in
from quaver.operators import WEIGHTED
from quaver.program import EVAL, Program
from quaver.program.reason import SkipPattern
from quaver.program.views import Executable

Batches = list[tuple[list[Tensor], Tensor | None]]
Done = Callable[[], None]


def quantized_ops(program: Program) -> list[Op]:
    """The quantized ops that compute; a reshape or a max pool only passes rounded values on."""
    ops = ops_in(program.graphs[EVAL])
    return [op for name, op in ops.items() if name in program.placements.quantized and op.facts.kind != "move"]


def with_float(graph: fx.Graph, names: Collection[str]) -> fx.Graph:
    """The evaluation graph with these ops reading unrounded tensors."""
    result = copy_graph(graph)
    for name, node in ops_by_name(result).items():
        if name in names:
            for value in list(node.all_input_nodes):
                if is_fake_quant(value):
                    node.replace_input_with(value, value.args[0])  # type: ignore[arg-type]
    for node in reversed(list(result.nodes)):
        if is_fake_quant(node) and not node.users:
            result.erase_node(node)
    return result


@dataclass
class Scoring:
    """Scores networks on the same images; the float network's outputs are what their outputs are compared with."""

    program: Program
    batches: Batches

    def __post_init__(self) -> None:
        self.labelled = all(labels is not None for _, labels in self.batches)
        self.reference = self._outputs(self._every_quantized())
        self.logits = all(len(outputs) >= 1 and outputs[0].dim() == 2 for outputs in self.reference)
        shapes = [list(labels.shape) for _, labels in self.batches if labels is not None and labels.dim() != 1]
        if self.logits and self.labelled and shapes:
            raise InputError(
                f"analyze: labels are one class per image, as whole numbers, and these have the shape {shapes[0]}. Of "
                "one-hot labels, give labels.argmax(1)."
            )

    @property
    def measure(self) -> str:
        """What ``accuracy`` is, in words."""
        return "top-1" if self.labelled else "agreement with the float network"

    @property
    def images(self) -> int:
        """How many images the scores are for."""
        return sum(len(inputs[0]) for inputs, _ in self.batches)

    def floating(self) -> Score:
        """The score of the float network."""
        return self._score(self.reference)

    def with_float(self, names: Collection[str]) -> Score:
        """The score with these ops left float and all others quantized."""
        return self._score(self._outputs(names))

    def only(self, name: str) -> Score:
        """The score with only this op quantized."""
        return self.with_float(self._every_quantized() - {name})

    def _every_quantized(self) -> frozenset[str]:
        return self.program.placements.quantized

    @torch.no_grad()
    def _outputs(self, names: Collection[str]) -> list[list[Tensor]]:
        graph = with_float(self.program.graphs[EVAL], names)
        run = Executable(self.program, self.program.engine.lowering().run(graph))
        results = []
        for inputs, _ in self.batches:
            flat = run(*inputs)
            results.append([value for value in flat if isinstance(value, Tensor) and value.is_floating_point()])
        return results

    def _score(self, results: list[list[Tensor]]) -> Score:
        signal = noise = 0.0
        right = 0
        for (_, labels), outputs, expected in zip(self.batches, results, self.reference, strict=True):
            for output, other in zip(outputs, expected, strict=True):
                signal += float(other.double().square().sum())
                noise += float((output.double() - other.double()).nan_to_num(1e30, 1e30, 1e30).square().sum())
            if self.logits:
                wanted = expected[0].argmax(1) if not self.labelled or labels is None else labels.to(outputs[0].device)
                right += int((outputs[0].argmax(1) == wanted)[outputs[0].isfinite().all(1)].sum())
        return Score(accuracy=right / self.images if self.logits else None, sqnr_db=decibels(signal, noise))


def refuse_not_finite(program: Program, sites: list[Site], batches: Batches) -> None:
    """Raise if the float network gives NaN or Inf for some of the images: there is nothing to compare with."""
    strange: list[str] = []

    def look(site: Site, x: Tensor, unit: Any) -> None:
        if not torch.isfinite(x).all():
            strange.append(site.name)

    network = WatchingInterpreter(program, sites, look, rounding=False)
    for inputs, _ in batches:
        outputs = network.outputs(inputs)
        if all(torch.isfinite(value).all() for value in outputs if isinstance(value, Tensor)):
            continue
        weights = [name for name, weight in program.named_parameters() if not torch.isfinite(weight).all()]
        names = [repr(name) for name in (*weights, *strange)] or ["its output"]
        raise InputError(
            f"analyze: {names[0]} has NaN or Inf in it, so the float network gives no output to compare others with. Mend "
            "the network; to look at its tensors, set sensitivity_images=0 (on the command line, leave out --sensitivity)."
        )


def propose(
    scoring: Scoring, layers: Iterable[LayerStatistics], target_drop: float, ops: list[Op], done: Done = lambda: None
) -> Proposal:
    """Which layers with weights to leave float so that accuracy falls by no more than ``target_drop``.

    The layers whose rounding alone disturbs the output most come first. As many of them as are needed are left float, found
    by halving; then each is tried in int8 again, the least harmful first. The patterns that leave them float stand behind
    those that leave layers float already, whose place they will take.
    """
    floor = (scoring.floating().accuracy or 0.0) - target_drop
    order = list(dict.fromkeys(layer.scope for layer in sorted(layers, key=_harm) if layer.type in WEIGHTED))

    def caught(scopes: list[str]) -> list[str]:
        return [op.name for op in ops if op.scope in scopes]

    def tried(scopes: list[str]) -> Score:
        done()
        return scoring.with_float(caught(scopes))

    def enough(score: Score) -> bool:
        return (score.accuracy or 0.0) >= floor

    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(tried(order[:middle])) else (middle + 1, high)
    chosen = order[:low]
    for scope in reversed(chosen[:-1]):
        fewer = [other for other in chosen if other != scope]
        if enough(tried(fewer)):
            chosen = fewer
    score = tried(chosen)
    return Proposal(
        target_drop=target_drop,
        layers=caught(chosen),
        not_quant_pattern=_own_patterns(scoring.program) + [_pattern_for(scope, scoring.program) for scope in chosen],
        score=score,
        reached=enough(score),
    )


def _own_patterns(program: Program) -> list[str]:
    """The skip patterns that leave ops of the program float already."""
    return list(dict.fromkeys(why.pattern for why in program.placements.declined.values() if isinstance(why, SkipPattern)))


def _pattern_for(scope: str, program: Program) -> str:
    """What leaves float what is quantized in a scope, and nothing else: its name, unless other scopes contain that."""
    others = {op.scope for op in program.ops() if op.quantized} - {scope}
    return scope if scope and not any(contains(other, scope) for other in others) else f"^{scope}$"


def _harm(layer: LayerStatistics) -> float:
    """Decibels between signal and the noise of a layer alone: the fewer, the worse."""
    return float("inf") if layer.only is None or layer.only.sqnr_db is None else layer.only.sqnr_db
