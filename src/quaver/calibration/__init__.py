"""Calibration: from a float model and some images to a prepared program, without training. One means per file."""

from quaver.calibration.calibrate import calibrate

__all__ = ["calibrate"]
