"""``quaver.freeze_batch_norm`` and ``quaver.unfreeze_batch_norm``: whether training moves batch-norm statistics."""

from torch import fx, nn

from quaver.errors import InputError, StageError
from quaver.graph.nodes import argument, calls
from quaver.program.program import TRAIN, Program
from quaver.program.stateful_ops import TRAINING, stateful_nodes
from quaver.program.synced_batch_norm import synced_batch_norm


def freeze_batch_norm(program: Program) -> None:
    """Let training normalize by the running statistics as they are, and move them no more.

    Weights and biases of batch norms go on training. It lasts through ``.train()`` and ``.eval()``, passes, and files; for
    some batch norms only, or until the next ``.train()``, call ``.eval()`` on them, as in any loop.
    """
    _set(program, training=False, who="freeze_batch_norm")


def unfreeze_batch_norm(program: Program) -> None:
    """Let training normalize by the batch at hand again, and move the running statistics."""
    _set(program, training=True, who="unfreeze_batch_norm")


def _set(program: Program, *, training: bool, who: str) -> None:
    if not isinstance(program, Program):
        raise InputError(
            f"{who}: takes a Program, not {type(program).__name__}. In a live model, call .eval() on its batch norms after "
            "each model.train()."
        )
    if TRAIN not in program.graphs:
        raise StageError(f"{who}: a {program.stage.value} program is not trained: its statistics stay as they are.")
    modules = {node: module for node, _, module in stateful_nodes(program, program.graphs[TRAIN])}
    for node in batch_norms(program.graphs[TRAIN]):
        if argument(node, "running_mean") is not None:  # without statistics there is only the batch
            node.update_arg(TRAINING, training)
            if node in modules:
                nn.Module.train(modules[node], training and program.training)
    program.forget_code()


def batch_norms(graph: fx.Graph) -> list[fx.Node]:
    """The batch norms of a graph."""
    return [node for node in graph.nodes if calls(node, "batch_norm") and node.target is not synced_batch_norm]
