"""Calibration: from a float model and some images to a prepared program, without training. One means per file."""

from typing import TYPE_CHECKING

from quaver.on_demand import on_demand

if TYPE_CHECKING:
    from quaver.calibration.calibrate import calibrate

on_demand(__name__, {"calibrate": "calibrate"})

__all__ = ["calibrate"]
