"""A saved program in the place of an engine's file: PyTorch runs it."""

from pathlib import Path

from quaver.engines import suffixes
from quaver.runtime.runner import Array, Input, Runner


def is_program_alone(folder: Path) -> bool:
    """Whether a folder holds a program, as ``quaver convert`` leaves it in ``float/``, and no file for an engine."""
    if not folder.is_dir() or any(file.suffix in suffixes() for file in folder.iterdir()):
        return False
    from quaver.program.storage import JSON_NAME

    return (folder / JSON_NAME).is_file()


class ProgramRunner(Runner):
    """A program that was saved at any stage, in evaluation."""

    engine = "PyTorch"

    def __init__(self, folder: Path, threads: int) -> None:
        import torch

        from quaver.program.storage import load

        self.program = load(folder).eval()
        self.inputs = [
            Input(taken.name, taken.shape, torch.empty((), dtype=taken.dtype).numpy().dtype)
            for taken in self.program.signature.tensors
        ]
        self.threads = threads

    def infer(self, batch: list[Array]) -> list[Array]:
        """The program's own call, its results in order."""
        import torch
        from torch.utils import _pytree as pytree

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with torch.no_grad():
                outputs = self.program(*map(torch.from_numpy, batch))
        finally:
            torch.set_num_threads(before)
        return [output.numpy() for output in pytree.tree_leaves(outputs)]
