"""How far a program has come on its way from float to int8."""

from enum import Enum


class Stage(Enum):
    """FLOAT: as captured. PREPARED: with quantizers, to be trained. FROZEN, INT8, MOBILE: integers, to be run."""

    FLOAT = "float"
    PREPARED = "prepared"
    FROZEN = "frozen"
    INT8 = "int8"
    MOBILE = "mobile"

    def __init__(self, name: str) -> None:
        self.trains = name in ("float", "prepared")
        """Whether a program at this stage has a training graph."""
