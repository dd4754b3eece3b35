"""The trainer: a phase of training from its first step, or from a checkpoint, to its last, bit for bit the same."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from quaver.config.recipe import NEVER, QuantPhase
from quaver.errors import StoppedError, StorageError, TrainingError
from quaver.records import decoded
from quaver.training.batch_norm_statistics import reestimate
from quaver.training.checkpoint import Checkpoint
from quaver.training.ema import EMA
from quaver.training.interruption import Interruption
from quaver.training.job import Job
from quaver.training.listener import Position, ProgressLine
from quaver.training.recorded_step import RecordedStep
from quaver.training.rng import random_state, restore_random_state
from quaver.training.schedules import learning_rate
from quaver.training.state import State, first_rates, optimizers_for, under
from quaver.training.step_program import StepRunner
from quaver.training.task import Batches
from quaver.training.watchdog import Watchdog

ROLLBACKS = 3  # a run that goes wrong once more is not helped by another


class Trainer:
    """Trains a program. `run` gives the figures of merit at the end; the program then holds the result."""

    def __init__(self, job: Job, stop: Interruption | None = None) -> None:
        self.job, self.phase = job, job.phase
        self.stop = stop or Interruption()
        if job.teacher is not None:
            job.teacher.eval()  # in training its dropout would speak, and its statistics would move
        self.state = State(
            job.program,
            optimizers_for(job.program, job.phase),
            Watchdog(job.program, job.ranks),
            EMA(job.program, job.phase.ema) if job.phase.ema else None,
        )
        self.runner = StepRunner(job.program, compile=job.phase.compile, ranks=job.ranks)
        recorded = job.phase.record and not job.phase.compile and job.ranks.world == 1
        self.gradients = RecordedStep(self._forward, job.program, recorded=recorded)
        self.view = job.program.clone(for_test=True)
        self._clock, self._timed = time.perf_counter(), 0
        self._began, self._began_at = time.perf_counter(), 0

    # the run

    def run(self, start: Checkpoint | None = None) -> dict[str, float]:
        """Train to the end, from the beginning or from a checkpoint of this phase."""
        if start is not None:
            self._go_on_from(start)
        else:
            torch.manual_seed(self.job.seed + self.job.ranks.rank)
            self._save()
        self._began, self._began_at = time.perf_counter(), self.state.at.step
        for listener in self.job.listeners:
            listener.started(self.job.name, self.state.at, self._steps)
        while not self._is_over():
            try:
                self._epoch()
            except _WrongError as wrong:
                self._roll_back(str(wrong))
            except _AskedError:
                self._save()
                raise StoppedError(self._farewell(), self.stop.number or max(self.stop.WATCHED)) from None
        return self._finished()

    @property
    def _steps(self) -> int:
        """All of them, if nothing comes between."""
        return self.phase.max_iters or self.phase.num_epochs * len(self.job.batches)

    def _is_over(self) -> bool:
        at, phase = self.state.at, self.phase
        through = at.step >= phase.max_iters if phase.max_iters else at.epoch >= phase.num_epochs
        return through or self.job.enough(self.state.metrics)

    def _epoch(self) -> None:
        epoch, images = self.state.at.epoch, None
        changed = self.runner.arrange(
            fixed_statistics=_reached(self.phase.freeze_bn_epoch, epoch),
            observing=not (isinstance(self.phase, QuantPhase) and _reached(self.phase.freeze_observers_epoch, epoch)),
        )
        if changed:
            self.gradients.forget()
        self._clock, self._timed = time.perf_counter(), self.state.at.step
        for batch in self.job.batches.epoch(epoch, start=self.state.at.batch):
            images, target = self._here(batch)
            output, loss = self._step(images, target)
            at = self.state.at
            self.state.at = replace(at, batch=at.batch + 1, step=at.step + 1)
            self._between_steps(images, target, output, loss)
            if self.state.at.step == self.phase.max_iters:
                break
        if images is not None:
            self._watch(images)
        self.state.metrics = self._evaluated()
        for listener in self.job.listeners:
            listener.evaluated(ProgressLine(self.job.name, self.state.at, self.state.metrics))
        self.state.at = Position(epoch + 1, 0, self.state.at.step)
        self._save()

    def _step(self, images: Tensor, target: Any) -> tuple[Any, Tensor]:
        step, optimizers = self.state.at.step, self.state.optimizers
        counted = self.job.steps_per_epoch or len(self.job.batches)
        for group, lr in zip(optimizers[0].param_groups, first_rates(self.phase), strict=False):
            group["lr"] = learning_rate(self.phase, step, counted, lr) * self.state.lr_factor
        loss, output = self.gradients(images, target)
        if self.phase.clip_norm:
            nn.utils.clip_grad_norm_(self.job.program.parameters(), self.phase.clip_norm)
        for optimizer in optimizers:
            optimizer.step()
        if self.state.average is not None:
            self.state.average.update(step)
        self.state.watchdog.note(loss)
        return output, loss

    def _forward(self, images: Tensor, target: Any) -> tuple[Tensor, Any]:
        with torch.autocast(self.job.device.type, torch.bfloat16, enabled=self.phase.bf16):
            output = self.runner(images)
            return self._loss(output, target, images), output

    def _loss(self, output: Any, target: Any, images: Tensor) -> Tensor:
        loss = self.job.task.loss(output, target)
        if self.job.teacher is None or not isinstance(self.phase, QuantPhase) or not self.phase.distill:
            return loss
        with torch.no_grad():
            wise = self.job.teacher(images)
        task: Any = self.job.task
        learned: Tensor = task.distillation(output, wise, self.phase.distill_temperature)
        return (1 - self.phase.distill) * loss + self.phase.distill * learned

    def _between_steps(self, images: Tensor, target: Any, output: Any, loss: Tensor) -> None:
        at = self.state.at
        for listener in self.job.listeners:
            listener.stepped(at)
        logged = (at.batch - 1) % self.job.log_period == 0
        if logged:
            self._log(images, target, output, loss)
        # what is due after the last batch is done at the end of the epoch
        if at.batch < len(self.job.batches) and at.step != self.phase.max_iters:
            due = at.step % self.job.checkpoint_period == 0
            if due or at.step % self.phase.watchdog_period == 0:
                self._watch(images)
            if due:
                self._save()
        if self.job.ranks.world == 1 or logged:  # several processes have to agree, which takes time
            self._stop_if_asked()

    def _log(self, images: Tensor, target: Any, output: Any, loss: Tensor) -> None:
        figures = {"loss": loss.detach().float()}
        if hasattr(self.job.task, "figures"):
            figures |= self.job.task.figures(output, target)
        means = self.job.ranks.total(torch.stack(list(figures.values()))) / self.job.ranks.world
        values = dict(zip(figures, means.tolist(), strict=True))
        values["lr"] = self.state.optimizers[0].param_groups[0]["lr"]
        at, now = self.state.at, time.perf_counter()
        seconds = (now - self._clock) / max(at.step - self._timed, 1)
        self._clock, self._timed = now, at.step
        per_second = len(images) * self.job.ranks.world / max(seconds, 1e-9)
        line = ProgressLine(self.job.name, replace(at, batch=at.batch - 1), values, seconds, per_second, self._left(now))
        for listener in self.job.listeners:
            listener.logged(line)

    def _left(self, now: float) -> float:
        """Seconds till the last step, if those to come take as long as those since the start, with all that is between."""
        at = self.state.at.step
        return (self._steps - at) * (now - self._began) / max(at - self._began_at, 1)

    def _evaluated(self) -> dict[str, float]:
        """The figures of merit of what the result would be if training ended here."""
        if self.job.test is None:
            return {}
        with self._as_result():
            return self._merit(self.job.test)

    @contextmanager
    def _as_result(self) -> Iterator[None]:
        """With averaged weights and statistics measured anew, if there are any; then as it was before."""
        random = random_state(self.job.device)  # which dropout asks, where statistics are measured
        self._swap()
        statistics = [(buffer, buffer.clone()) for buffer in self.job.program.buffers()]
        try:
            self._reestimate(self.state.at.epoch + 1, self._stop_if_asked)
            yield
        finally:
            for buffer, before in statistics:
                buffer.copy_(before)
            self._swap()
            restore_random_state(random, self.job.device)

    def _swap(self) -> None:
        if self.state.average is not None:
            self.state.average.swap()

    def _reestimate(self, epoch: int, ask: Callable[[], None]) -> None:
        """Measure batch-norm statistics anew, on batches of an epoch; ``ask`` is called before each."""
        if not self.phase.reestimate_bn:
            return
        self.runner.arrange(fixed_statistics=False, observing=False)
        batches = islice(_Stoppable(self.job.batches, ask).epoch(epoch), self.phase.reestimate_bn)
        reestimate(self.job.program, self.runner, (self._here(batch)[0] for batch in batches))

    def _merit(self, test: Batches) -> dict[str, float]:
        # several processes would have to agree between two batches
        return self.job.task.evaluate(
            self.view, _Stoppable(test, self._stop_if_asked) if self.job.ranks.world == 1 else test
        )

    def _finished(self) -> dict[str, float]:
        """Make the program what it is to be: averaged weights, statistics measured anew."""
        self._swap()
        self._reestimate(self.state.at.epoch, ask=lambda: None)
        if self.job.test is not None and not self.state.metrics:  # else they are the last epoch's, of this very program
            self.state.metrics = self.job.task.evaluate(self.view, self.job.test)
        return self.state.metrics

    # what can go wrong

    def _watch(self, images: Tensor) -> None:
        if self.phase.watchdog == "off":
            return
        problem = self.state.watchdog.look(images)
        if problem is None:
            return
        where = f"{self.job.name}: epoch {self.state.at.epoch}, batch {self.state.at.batch}: {problem}"
        if self.phase.watchdog != "warn":
            raise _WrongError(where)
        self._say(f"warning: {where}")

    def _roll_back(self, problem: str) -> None:
        """Back to the last checkpoint with a lower learning rate, where that was chosen and may still help."""
        checkpoints, rollbacks = self.job.checkpoints, self.state.rollbacks
        if self.phase.watchdog != "rollback" or len(rollbacks) >= ROLLBACKS or checkpoints is None:
            raise TrainingError(f"{problem} ({len(rollbacks)} rollbacks did not help.)" if rollbacks else problem)
        rollbacks, factor = [*rollbacks, problem], self.state.lr_factor * self.phase.rollback_lr_factor
        self._go_on_from(self.job.ranks.from_first(checkpoints.newest(self._say) if self.job.ranks.first else None))
        self.state.rollbacks, self.state.lr_factor = rollbacks, factor
        at = self.state.at
        self._say(
            f"{problem}\nrolled back to epoch {at.epoch}, batch {at.batch}; learning rate times {factor:g} from here on"
        )

    def _stop_if_asked(self) -> None:
        if any(self.job.ranks.gathered(self.stop.number)):
            raise _AskedError

    def _farewell(self) -> str:
        where = f"stopped at epoch {self.state.at.epoch}, batch {self.state.at.batch}"
        return f"{where}, and saved. Go on with: {self.job.resume}" if self.job.checkpoints is not None else f"{where}."

    # checkpoints

    def _save(self) -> None:
        """Write all there is to go on from here."""
        job = self.job
        if job.checkpoints is None:
            return
        random = job.ranks.gathered(random_state(job.device))
        if not job.ranks.first:
            return
        tensors, record = self.state.taken()
        tensors |= {f"random.{rank}.{kind}": tensor for rank, states in enumerate(random) for kind, tensor in states.items()}
        run = {"phase": job.name, "processes": job.ranks.world, "marks": [listener.length() for listener in job.listeners]}
        job.checkpoints.save(Checkpoint(f"{job.name}-{self.state.at.step:09d}", tensors, job.header | run | record))

    def _go_on_from(self, checkpoint: Checkpoint) -> None:
        """Be as the run was when it wrote a checkpoint."""
        job, record = self.job, checkpoint.record
        self.state.put_back(checkpoint)
        try:
            lengths = decoded(list[int], record["marks"])
            if record["processes"] == job.ranks.world:
                restore_random_state(under(f"random.{job.ranks.rank}.", checkpoint.tensors), job.device)
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise StorageError(f"checkpoint {checkpoint.name}: it is damaged: {error}.") from error
        if record["processes"] != job.ranks.world:
            self._say(
                f"warning: {checkpoint.name} was written by {record['processes']} processes, and this run has "
                f"{job.ranks.world}: random numbers start anew, so the result will not be the same to the last bit."
            )
            torch.manual_seed(job.seed + self.state.at.step + job.ranks.rank)
        for listener, length in zip(job.listeners, lengths, strict=False):
            listener.truncate(max(length, 0))

    # small things

    def _here(self, batch: Any) -> tuple[Tensor, Any]:
        """A batch on the device, images in the layout that is fastest there."""
        device = self.job.device
        images, target = pytree.tree_map_only(Tensor, lambda x: x.to(device, non_blocking=True), tuple(batch))
        if device.type == "cuda":
            images = images.contiguous(memory_format=torch.channels_last)
        return images, target

    def _say(self, message: str) -> None:
        for listener in self.job.listeners:
            listener.notified(message)


class _WrongError(Exception):
    """The watchdog saw something."""


class _AskedError(Exception):
    """A signal asked to stop."""


class _Stoppable:
    """A loader that asks between two batches whether to go on."""

    def __init__(self, batches: Batches, ask: Callable[[], None]) -> None:
        self.batches, self.ask = batches, ask

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        return self.epoch(0)

    def epoch(self, k: int, start: int = 0) -> Iterator[tuple[Tensor, Any]]:
        for batch in self.batches.epoch(k, start):
            self.ask()
            yield batch


def _reached(point: int, epoch: int) -> bool:
    return point != NEVER and epoch >= point
