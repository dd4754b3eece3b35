"""What each runtime can execute, as data."""

from quaver.targets.executorch import EXECUTORCH
from quaver.targets.onnx import ONNX
from quaver.targets.openvino import OPENVINO
from quaver.targets.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (OPENVINO, ONNX, EXECUTORCH)}

__all__ = ["EXECUTORCH", "ONNX", "OPENVINO", "TARGETS", "Target"]
