"""A float program with ranges from the training images of a run: where training starts, or all that is needed."""

from typing import Any

from quaver.calibration import calibrate
from quaver.config import QuantConfig
from quaver.data import Loader
from quaver.experiment.components import Components
from quaver.program import Program


def calibrated(components: Components, fp32: Program, config: QuantConfig, **options: Any) -> Program:
    """The float program with quantizers, ranges and corrected weights from training images."""
    batches = Loader(components.train.dataset, components.recipe.batch_size, shuffle=True)
    return calibrate(fp32, batches.epoch(0), config, **options)
