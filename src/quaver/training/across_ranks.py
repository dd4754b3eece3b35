"""A program that several processes train as one."""

from quaver.program import Program
from quaver.training.batch_norm_statistics import with_synced_statistics


def across_ranks(program: Program) -> Program:
    """The program over the same tensors, to be trained by all processes of the default group together.

    Batch norm takes its statistics over the batches of all of them, and so do the ranges of activations: every process
    holds the same thresholds, bit for bit, and those of one process with the whole batch. Gradients are left to
    ``torch.nn.parallel.DistributedDataParallel``, which takes what this gives.
    """
    twin = with_synced_statistics(program)
    observe_together(twin)
    return twin


def observe_together(program: Program) -> None:
    """Let the ranges of activations be those of all processes; weights are the same everywhere already."""
    for name, quantizer in program.quantizers():
        quantizer.synced = name not in program.placements.weights
