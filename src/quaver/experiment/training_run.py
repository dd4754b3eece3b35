"""The two runs: float training, and the whole way to int8."""

import copy
import hashlib
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from quaver.analysis import Analysis, analyze
from quaver.config.recipe import FROM_DATA, NO_TARGET, Phase
from quaver.data import Loader
from quaver.errors import ConfigError, InputError, StorageError
from quaver.experiment.calibrated import calibrated
from quaver.experiment.components import Components
from quaver.experiment.run_folder import weights_at
from quaver.experiment.start import Start
from quaver.experiment.target_drop import Attempt, Figures, TargetDrop
from quaver.models import load_weights
from quaver.pipeline import quant_aware
from quaver.program import Program
from quaver.training.interruption import Interruption
from quaver.training.job import Job
from quaver.training.listener import Listener
from quaver.training.trainer import Trainer

FLOAT, QUANTIZE = "float", "quantize"


@dataclass(frozen=True)
class Trained:
    """A program, its figures of merit, and the rollbacks it took to get there.

    ``choice``: where several ways were open, which was taken, and by what.
    """

    program: Program
    figures: Figures
    rollbacks: list[str]
    choice: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingRun:
    """A run in progress: how it started, what it works with, and who is told."""

    start: Start
    components: Components
    listeners: tuple[Listener, ...] = ()

    def to_float(self) -> Trained:
        """A trained float model: as ``--pretrained_fp32_model`` gives it, trained further by ``train``'s epochs."""
        model = self._model()
        return self._trained(FLOAT, self.components.captured(model), self.components.recipe.train, {})

    def to_int8(self) -> tuple[Trained, Trained]:
        """The float model and the one trained with quantizers; without weights to start from, float training comes first."""
        recipe, folder = self.components.recipe, self.start.folder
        if recipe.quantize.target_drop != NO_TARGET and self.components.ranks.world > 1:
            raise ConfigError("target_drop: one process looks for the shortest way. Leave torchrun out, or the target.")
        before = self._float_model()
        if self.components.ranks.first and not self._goes_on_in(QUANTIZE):
            folder.write_weights(before.program.state_dict())
        digest = self.components.ranks.from_first(_digest(folder.fp32) if self.components.ranks.first else "")
        header = {"float": before.figures, "fp32_sha256": digest}
        if recipe.quantize.target_drop != NO_TARGET:
            return before, self._to_target(before, header)
        teacher = self._teacher(before) if recipe.quantize.distill else None
        qat = quant_aware(before.program, recipe.quantize.quant_config())
        if not self._goes_on_in(QUANTIZE):  # a checkpoint has ranges of its own
            self._start_ranges(before.program, qat)
        return before, self._trained(QUANTIZE, qat, recipe.quantize, header, teacher)

    def _to_target(self, before: Trained, header: dict[str, Any]) -> Trained:
        """The shortest way that loses no more than ``target_drop``; training, if it comes to that, has a teacher.

        It is chosen by images held out. The test set is looked at once, when there is nothing left to choose.
        """
        components, phase = self.components, self.components.recipe.quantize
        target = TargetDrop(components, before.program, self.say)
        if self._goes_on_in(QUANTIZE):
            # tensors of its own, as calibrated programs have: training must not move what it is judged against
            start = quant_aware(copy.deepcopy(before.program), phase.quant_config())
        else:
            attempt = target.without_training()
            if target.is_met(attempt.figures):
                return self._chosen(target, attempt)
            start = attempt.program
        teacher = self._teacher(before) if phase.distill else None
        trained = self._trained(QUANTIZE, start, phase, header, teacher, target)
        attempt = Attempt("trained", trained.program, trained.figures)
        target.tell(attempt)
        return self._chosen(target, attempt, trained.rollbacks)

    def _chosen(self, target: TargetDrop, attempt: Attempt, rollbacks: list[str] | None = None) -> Trained:
        """An attempt as the run's result, with its figures on the test set."""
        figures = self.components.task.evaluate(attempt.program, self.components.test)
        choice = {
            "way": attempt.way,
            "held_out_images": len(target.choice.dataset),
            "held_out_points_lost": target.drop(attempt.figures),
        }
        return Trained(attempt.program, figures, rollbacks or [], choice)

    def _teacher(self, before: Trained) -> nn.Module:
        return copy.deepcopy(before.program).eval().to(self.components.device)

    def to_analysis(self) -> Analysis:
        """What the float model's ranges are on training data, kept in the run's folder."""
        return self._look_at(self.components.captured(self._model()).to(self.components.device))

    def _look_at(self, fp32: Program) -> Analysis:
        count = self.components.recipe.quantize.analysis_batches
        self.say(f"looking at {count} batches (--analysis_batches) …")
        batches = Loader(self.components.train.dataset, self.components.recipe.batch_size, shuffle=True)
        analysis = analyze(fp32, islice(batches.epoch(0), count))
        analysis.save(self.start.folder.analysis)
        return analysis

    def _start_ranges(self, fp32: Program, qat: Program) -> None:
        """Ranges and clips as an analysis says: of a file, or of the training data here and now; or calibrated."""
        phase, ranks = self.components.recipe.quantize, self.components.ranks
        if not phase.init_from:
            if phase.calibrate and not phase.use_pact and self._has_weights:
                self._calibrate(fp32, qat)
            return
        file = Path(phase.init_from)
        if phase.init_from == FROM_DATA:
            if ranks.first:
                self._look_at(fp32)
            file = Path(ranks.from_first(str(self.start.folder.analysis)))
        started = Analysis.load(file).initialise(qat, by=phase.init_by)
        self.say(f"{len(started)} ranges start from {file.name} ({phase.init_by}).")

    @property
    def _has_weights(self) -> bool:
        """Whether the float model was trained."""
        recipe = self.components.recipe
        return bool(recipe.pretrained_fp32_model or recipe.train.num_epochs or recipe.train.max_iters)

    def _calibrate(self, fp32: Program, qat: Program) -> None:
        """Ranges and weights as calibration makes them, the same in every process."""
        ranks, state = self.components.ranks, None
        if ranks.first:
            try:
                program = calibrated(self.components, fp32, self.components.recipe.quantize.quant_config())
                state = {name: tensor.cpu() for name, tensor in program.state_dict().items()}
            except InputError as error:  # nobody asked for it
                self.say(f"training begins without calibration: {error}")
        state = ranks.from_first(state)
        if state is not None:
            qat.load_state_dict(state)
            self.say("ranges and weights start calibrated (--calibrate).")

    def _float_model(self) -> Trained:
        recipe, start = self.components.recipe, self.start
        if start.checkpoint is not None and self._goes_on_in(QUANTIZE):
            program = self.components.captured(self._model_of_run())
            return Trained(program, start.checkpoint.record.get("float", {}), [])
        if not recipe.pretrained_fp32_model:
            epochs = recipe.train.num_epochs
            self.say(
                f"no --pretrained_fp32_model: training a float model first (--float_epochs {epochs})."
                if epochs
                else "no --pretrained_fp32_model, and --float_epochs 0: training with quantizers from random weights."
            )
            return self.to_float()
        program = self.components.captured(self._model()).to(self.components.device)
        return Trained(program, self.components.task.evaluate(program, self.components.test), [])

    def _model(self) -> nn.Module:
        """The model with the weights that the recipe names, or fresh ones."""
        recipe, model = self.components.recipe, self.components.model()
        if recipe.pretrained_fp32_model and self.start.checkpoint is None:
            file = weights_at(recipe.pretrained_fp32_model)
            left = load_weights(model, file, new_head=self.start.command == "train")
            if left:
                self.say(f"{file} was trained for other classes: {', '.join(left)} start from random weights.")
        return model

    def _model_of_run(self) -> nn.Module:
        """The float model that the run left on disk when it went on to quantizers."""
        model, file = self.components.model(), self.start.folder.fp32
        assert self.start.checkpoint is not None
        if not file.exists() or _digest(file) != self.start.checkpoint.record.get("fp32_sha256"):
            raise StorageError(f"{file}: is missing, or is not the one this run started from. Start again.")
        load_weights(model, file)
        return model

    def _goes_on_in(self, phase: str) -> bool:
        return self.start.checkpoint is not None and self.start.checkpoint.record.get("phase") == phase

    def _trained(
        self,
        name: str,
        program: Program,
        phase: Phase,
        header: dict[str, Any],
        teacher: nn.Module | None = None,
        target: TargetDrop | None = None,
    ) -> Trained:
        """A phase of training, from its beginning, or from the checkpoint if that is of this phase.

        With a target it is judged by the images held out, and ends when that is met.
        """
        components, recipe, start = self.components, self.components.recipe, self.start
        job = Job(
            name=name,
            program=program.to(components.device),
            task=components.task_for(phase),
            phase=phase,
            batches=components.train,
            test=components.held_out if target else components.test,
            teacher=teacher,
            device=components.device,
            ranks=components.ranks,
            seed=recipe.seed,
            steps_per_epoch=components.steps_per_epoch,
            log_period=recipe.log_period,
            checkpoint_period=recipe.checkpoint_period,
            checkpoints=start.folder.checkpoints,
            enough=target.is_met if target else lambda figures: False,
            header={"command": start.command, "recipe": recipe.record(), **header},
            listeners=self.listeners,
            resume=start.resume,
        )
        with Interruption() as stop:
            trainer = Trainer(job, stop)
            figures = trainer.run(start.checkpoint if self._goes_on_in(name) else None)
        return Trained(program, figures, trainer.state.rollbacks)

    def say(self, message: str) -> None:
        """Tell every listener."""
        for listener in self.listeners:
            listener.notified(message)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
