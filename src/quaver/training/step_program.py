"""The program as a step runs it: with the schedule's changes, compiled, over several processes."""

from inspect import signature
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from quaver.program import Program
from quaver.quantizers.switches import disable_observer
from quaver.training.across_ranks import across_ranks, observe_together
from quaver.training.batch_norm_statistics import with_fixed_statistics
from quaver.training.compiled import compile_training
from quaver.training.ranks import Ranks

# statistics and ranges are the same everywhere after each step; torch 2.13 renamed the option for not broadcasting them
_DDP_PARAMETERS = signature(DistributedDataParallel).parameters
_BUFFERS_ARE_EQUAL: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _DDP_PARAMETERS else "broadcast_buffers": False
}


class StepRunner:
    """Calls a program in training. Changes on the way are views over the same tensors, so the optimizer sees none."""

    def __init__(self, program: Program, *, compile: bool = False, ranks: Ranks | None = None) -> None:
        self.program = program
        self.several = ranks is not None and ranks.world > 1
        self._views: dict[tuple[bool, bool], Program] = {}  # kept, for each has compiled code of its own
        self._stage = _Stage(program)
        called: Any = self._stage
        if self.several:
            called = DistributedDataParallel(self._stage, **_BUFFERS_ARE_EQUAL)
        self._call = compile_training(called) if compile else called

    def arrange(self, *, fixed_statistics: bool, observing: bool) -> bool:
        """From now on with or without moving batch-norm statistics, and moving ranges; whether that is new."""
        chosen = (fixed_statistics, observing)
        if chosen not in self._views:
            self._views[chosen] = self._view(fixed_statistics=fixed_statistics, observing=observing)
        is_new = self._stage.view is not self._views[chosen]
        self._stage.use(self._views[chosen])
        return is_new

    def _view(self, *, fixed_statistics: bool, observing: bool) -> Program:
        if fixed_statistics:
            view = with_fixed_statistics(self.program)
        else:
            view = across_ranks(self.program) if self.several else self.program.clone()
        if self.several:
            observe_together(view)
        if not observing:
            view.apply(disable_observer)
        return view.train()

    def __call__(self, images: Tensor) -> Any:
        """What the model gives for a batch."""
        return self._call(images)


class _Stage(nn.Module):
    """Owns the program's parameters, and calls the view that is in use."""

    view: Program

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.use(program)

    def use(self, view: Program) -> None:
        object.__setattr__(self, "view", view)  # not as a child: its parameters are the program's

    def forward(self, images: Tensor) -> Any:
        return self.view(images)
