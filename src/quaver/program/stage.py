"""How far a program has come on its way from float to int8."""

from enum import Enum


class Stage(Enum):
    """FLOAT: as captured. PREPARED: with quantizers, to be trained. FROZEN, INT8, MOBILE: integers, to be run."""

    FLOAT = "float"
    PREPARED = "prepared"
    FROZEN = "frozen"
    INT8 = "int8"
    MOBILE = "mobile"

    @property
    def trains(self) -> bool:
        """Whether a program at this stage has a training graph."""
        return self in (Stage.FLOAT, Stage.PREPARED)
