"""``quaver.reestimate_batch_norm``: running statistics measured anew, on batches and with the weights of now."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from quaver.analysis.arguments import on_its_device, split
from quaver.errors import InputError, StageError
from quaver.program import Program
from quaver.program.freeze_batch_norm import unfreeze_batch_norm
from quaver.quantizers.switches import disable_observer
from quaver.training.batch_norm_statistics import reestimate

_WHO = "reestimate_batch_norm"


def reestimate_batch_norm(program: Program, batches: Iterable[Any]) -> None:
    """Set the running statistics of all batch norms to the mean over ``batches``, each counting the same.

    For a program whose weights are an average (EMA, SWA), or a little before conversion: running statistics lag behind the
    weights. ``batches``: images, or pairs of images and labels, which are not looked at; as many as in training per batch.
    Ranges of quantizers stay as they are, which ``torch.optim.swa_utils.update_bn`` moves, too.
    """
    if not isinstance(program, Program):
        raise InputError(
            f"{_WHO}: takes a Program, not {type(program).__name__}. torch.optim.swa_utils.update_bn does it for a model."
        )
    if not program.stage.trains:
        raise StageError(f"{_WHO}: in a {program.stage.value} program, batch norms are part of the layers. Do it before.")
    run = program.clone()
    unfreeze_batch_norm(run)
    run.train().apply(disable_observer)
    if not reestimate(run, run, _images(program, batches)):
        raise InputError(f"{_WHO}: no batches were given, so there is nothing to measure. The statistics are as they were.")


def _images(program: Program, batches: Iterable[Any]) -> Iterator[Tensor]:
    for batch in batches:
        yield on_its_device(program, split(batch, _WHO)[0])
