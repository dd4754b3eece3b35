"""Quaver: quantization-aware training for PyTorch vision models, from float to an int8 model that runs."""

from typing import TYPE_CHECKING

from quaver.machine.onednn import keep_off_doubtful_amx
from quaver.on_demand import on_demand

if TYPE_CHECKING:
    from quaver import errors, nn, passes, quantizers, runtime
    from quaver.analysis.analysis import Analysis
    from quaver.analysis.analyze import analyze
    from quaver.calibration import calibrate
    from quaver.calibration.statistics import reestimate_batch_norm
    from quaver.capture import capture, name_scope
    from quaver.config import QuantConfig
    from quaver.eager import QAT, InputSpec
    from quaver.errors import QuaverError
    from quaver.export import export
    from quaver.image_input import ImageInput
    from quaver.measure.verify import Verification, verify
    from quaver.pipeline import convert, quant_aware
    from quaver.preprocessing import Preprocessing
    from quaver.program import Program, Stage
    from quaver.program.features import FeatureExtractor, feature_extractor
    from quaver.program.freeze_batch_norm import freeze_batch_norm, unfreeze_batch_norm
    from quaver.program.storage import load, save
    from quaver.quantizers.switches import disable_fake_quant, disable_observer, enable_fake_quant, enable_observer

__version__ = "0.1.0"

keep_off_doubtful_amx()
on_demand(
    __name__,
    {
        "": "errors nn passes quantizers runtime",
        "analysis.analysis": "Analysis",
        "analysis.analyze": "analyze",
        "calibration": "calibrate",
        "calibration.statistics": "reestimate_batch_norm",
        "capture": "capture name_scope",
        "config": "QuantConfig",
        "eager": "QAT InputSpec",
        "errors": "QuaverError",
        "export": "export",
        "image_input": "ImageInput",
        "measure.verify": "Verification verify",
        "pipeline": "convert quant_aware",
        "preprocessing": "Preprocessing",
        "program": "Program Stage",
        "program.freeze_batch_norm": "freeze_batch_norm unfreeze_batch_norm",
        "program.features": "FeatureExtractor feature_extractor",
        "program.storage": "load save",
        "quantizers.switches": "disable_fake_quant disable_observer enable_fake_quant enable_observer",
    },
)

__all__ = [
    "QAT",
    "Analysis",
    "FeatureExtractor",
    "ImageInput",
    "InputSpec",
    "Preprocessing",
    "Program",
    "QuantConfig",
    "QuaverError",
    "Stage",
    "Verification",
    "analyze",
    "calibrate",
    "capture",
    "convert",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "errors",
    "export",
    "feature_extractor",
    "freeze_batch_norm",
    "load",
    "name_scope",
    "nn",
    "passes",
    "quant_aware",
    "quantizers",
    "reestimate_batch_norm",
    "runtime",
    "save",
    "unfreeze_batch_norm",
    "verify",
]
