"""What each runtime can execute, as data."""

from pathlib import Path

from quaver.targets.executorch import EXECUTORCH
from quaver.targets.onnx import ONNX
from quaver.targets.openvino import OPENVINO
from quaver.targets.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (OPENVINO, ONNX, EXECUTORCH)}


def target_of(file: Path) -> Target:
    """The target whose engine reads such a file."""
    return next(target for target in TARGETS.values() if target.suffix == file.suffix)


__all__ = ["EXECUTORCH", "ONNX", "OPENVINO", "TARGETS", "Target", "target_of"]
