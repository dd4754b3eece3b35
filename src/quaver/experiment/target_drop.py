"""The shortest way to int8 that loses no more than is allowed: calibration; then a few layers in float; then training."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from quaver.analysis import analyze
from quaver.analysis.findings import Proposal
from quaver.config import QuantConfig
from quaver.config.recipe import QuantPhase
from quaver.data import Loader
from quaver.engines import Engine
from quaver.errors import EngineError
from quaver.experiment.calibrated import calibrated
from quaver.experiment.components import Components
from quaver.export import export
from quaver.measure.latency import measure
from quaver.operators import WEIGHTED
from quaver.pipeline import convert
from quaver.program import Program
from quaver.runtime import Runner, load
from quaver.training.classification import Classification

Figures = dict[str, float]

SCORED = 512
"""Images that layers are tried on, one by one."""
FEW = 4
"""One layer in so many may stay float: with more of them it is not int8 any more, and training is the better way."""
STEP = 3
"""What a step of training costs, in passes of the network forwards."""
ROUNDS = 30
"""Images that a latency is the median of."""


RANGES_ALONE = {"equalize": False, "round_weights": False, "correct_bias": False, "reestimate_bn": False}
"""What calibration leaves out where weights are to stay the float program's."""


def points_lost(components: Components, before: Figures, after: Figures) -> float:
    """How far the figure that says which model is better has fallen."""
    metric = components.task.metric
    return 100 * (before[metric] - after[metric])


@dataclass(frozen=True)
class Attempt:
    """A program with quantizers, what it is, and what it reached."""

    way: str
    program: Program
    figures: Figures


@dataclass(frozen=True)
class TargetDrop:
    """A target: how far below the float program's an int8 program's accuracy may lie. ``say`` is told of each attempt.

    Attempts are judged by training images that were held out: a figure on the test set that was chosen by would flatter.
    """

    components: Components
    fp32: Program
    say: Callable[[str], None]

    @cached_property
    def figures(self) -> Figures:
        """The float program's, on the images held out."""
        return self.evaluated(self.fp32)

    def evaluated(self, program: Program) -> Figures:
        """A program's figures on the images held out."""
        return self.components.task.evaluate(program, self.choice)

    @property
    def choice(self) -> Loader:
        """The images held out."""
        assert self.components.held_out is not None, "components of a run with a target hold images out"
        return self.components.held_out

    @property
    def _phase(self) -> QuantPhase:
        return self.components.recipe.quantize

    def drop(self, figures: Figures) -> float:
        """How many points lie between the float program and one with these figures."""
        return points_lost(self.components, self.figures, figures)

    def is_met(self, figures: Figures) -> bool:
        """Whether these figures are good enough; nobody's are not."""
        return bool(figures) and self.drop(figures) <= self._phase.target_drop

    def without_training(self) -> Attempt:
        """The first that meets the target of: every layer in int8, all but a few; without any, the first, to be trained."""
        config = self._phase.quant_config()
        first = self._tried("calibrated", config)
        if self.is_met(first.figures) or not self._is_cheaper_than_training(first.program):
            return first
        proposal = self._proposal(config)
        layers = sum(op.quantized and op.type in WEIGHTED for op in first.program.ops())
        if not proposal.reached or FEW * len(proposal.layers) > layers:
            self.say(f"no {layers // FEW} of {layers} layers in float would be enough.")
            return first
        names = ", ".join(proposal.layers)
        second = self._tried(f"calibrated, {names} in float", replace(config, not_quant_pattern=proposal.not_quant_pattern))
        return second if self.is_met(second.figures) else first

    def _tried(self, way: str, config: QuantConfig) -> Attempt:
        program = calibrated(self.components, self.fp32, config)
        attempt = Attempt(way, program, self.evaluated(program))
        self.tell(attempt)
        return attempt

    def _is_cheaper_than_training(self, program: Program) -> bool:
        """Whether to try layers one by one takes fewer passes of the network than to train, and can be done at all."""
        phase, images = self._phase, min(SCORED, len(self.choice.dataset))
        steps = phase.max_iters or phase.num_epochs * len(self.components.train)
        tries = 2 * sum(op.quantized for op in program.ops())
        is_cheaper = tries * images < STEP * steps * self.components.recipe.batch_size
        return is_cheaper and isinstance(self.components.task, Classification)

    def _proposal(self, config: QuantConfig) -> Proposal:
        """Which layers to leave float, by the float program's own weights: corrected ones fit int8 only."""
        self.say("looking for layers that lose the most …")
        program = calibrated(self.components, self.fp32, config, **RANGES_ALONE)
        batches = Loader(self.choice.dataset, self.components.recipe.batch_size, shuffle=True)
        some = islice(batches.epoch(0), -(-SCORED // self.components.recipe.batch_size))
        analysis = analyze(program, some, sensitivity_images=SCORED, target_drop=max(self._phase.target_drop, 0.0) / 100)
        assert analysis.proposal is not None
        return analysis.proposal

    def tell(self, attempt: Attempt) -> None:
        """Say what an attempt reached on the images held out, and what an image takes on the engine."""
        metric, drop = self.components.task.metric, self.drop(attempt.figures)
        apart = f"{abs(drop):.2f} points {'below' if drop > 0 else 'above'} float" if abs(drop) >= 0.005 else "as float"
        reached = f"{metric} {attempt.figures[metric]:.4f}, {apart}"
        met = "the target is met" if self.is_met(attempt.figures) else f"wanted: at most {self._phase.target_drop:g}"
        self.say(f"{attempt.way}: {reached} ({met}){self._latency.words(attempt.program)}")

    @cached_property
    def _latency(self) -> "_LatencyBesideFloat":
        return _LatencyBesideFloat(self.fp32, self.components.engine)


class _LatencyBesideFloat:
    """What an image takes on an engine, in int8 and in float, one thread."""

    def __init__(self, fp32: Program, engine: Engine) -> None:
        self.fp32, self.engine = fp32, engine

    def words(self, prepared: Program) -> str:
        """Both, to be added to a sentence; nothing where there is no engine."""
        if not self.engine.is_installed:
            return ""
        with TemporaryDirectory() as folder:
            try:
                runners = {"int8": self._runner(convert(_on_processor(prepared)), folder, "int8"), "float": self._float}
            except EngineError as error:
                return f"; on {self.engine.name} not measured: {error}"
            taken = measure(runners, 1, rounds=ROUNDS)
        times = {name: f"{latency.median_ms:.2f}" for name, latency in taken.items()}
        return f"; {times['int8']} ms an image on {self.engine.name}, float {times['float']}"

    @cached_property
    def _float(self) -> Runner:
        with TemporaryDirectory() as folder:
            return self._runner(_on_processor(self.fp32), folder, "float")

    def _runner(self, program: Program, folder: str, name: str) -> Runner:
        return load(export(program, Path(folder) / name, self.engine.name), threads=1)


def _on_processor(program: Program) -> Program:
    return copy.deepcopy(program.clone()).to("cpu").eval()
