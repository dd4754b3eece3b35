"""A program as an ExecuTorch file (``.pte``): XNNPACK runs all that it takes, ExecuTorch's own kernels run the rest."""

import hashlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from quaver.errors import EngineError, StageError
from quaver.export.xnnpack import for_xnnpack
from quaver.program import Program, Stage

SEAL = b"QUAVERPT"
FACTS = "quaver"  # the method of the file that gives what Quaver wrote about it


def serialized(program: Program) -> bytes:
    """The content of a ``.pte`` file that computes what a mobile program computes, its weights stored as int8.

    A program with a free batch is written for a batch of one. ExecuTorch would take a range of sizes, but it plans memory
    for the largest and XNNPACK declines slices and bilinear resizing then; and one call per image is as fast.

    A seal follows the content, which ExecuTorch does not read and `quaver.runtime` checks: ExecuTorch itself crashes on
    damaged files.
    """
    with silenced():
        from executorch.exir import ExecutorchBackendConfig

        content = lowered(program).to_executorch(ExecutorchBackendConfig()).buffer
    return sealed(content)


def lowered(program: Program) -> Any:
    """The program as ExecuTorch's ``EdgeProgramManager``, with the parts that XNNPACK takes already handed over."""
    if program.stage not in (Stage.MOBILE, Stage.FLOAT):
        raise StageError(
            f"ExecuTorch: takes a mobile program, or a float one, and this one is {program.stage.value}. "
            "TransformForMobilePass makes a mobile program of a frozen one."
        )
    inputs, module = example(program), program.graph_module()
    for_xnnpack(module, inputs)
    with silenced():
        try:
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower
        except ImportError as error:
            raise EngineError(
                "executorch is not installed: it writes .pte files. Install it with pip install 'quaver[executorch]'."
            ) from error
        exported = torch.export.export(module, inputs, strict=False)
        facts = {FACTS: json.dumps(facts_about(program))}
        return to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()], constant_methods=facts)


def example(program: Program) -> tuple[Tensor, ...]:
    """Zeros in the shapes that the file will take."""
    return tuple(
        torch.zeros([1 if size is None else size for size in leaf.shape], dtype=leaf.dtype)
        for leaf in program.signature.tensors
    )


def facts_about(program: Program) -> dict[str, Any]:
    """What ExecuTorch does not keep: the names of the inputs, and which sizes are free."""
    tensors = program.signature.tensors
    return {"inputs": [[leaf.name, leaf.shape, str(leaf.dtype).removeprefix("torch.")] for leaf in tensors]}


def sealed(content: bytes) -> bytes:
    """The content with its checksum behind it."""
    return content + SEAL + hashlib.sha256(content).digest()


@contextmanager
def silenced() -> Iterator[None]:
    """Keep what ExecuTorch and its dependencies log and warn about on import and on the way off the screen."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
