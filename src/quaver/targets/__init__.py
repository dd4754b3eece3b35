"""What each runtime can execute, as data."""

from quaver.targets.openvino import OPENVINO
from quaver.targets.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (OPENVINO,)}

__all__ = ["OPENVINO", "TARGETS", "Target"]
