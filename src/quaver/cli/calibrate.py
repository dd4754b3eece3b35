"""``quaver calibrate``: a prepared program from float weights and some images, without training."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from quaver.calibration.calibration_options import CalibrationOptions
from quaver.cli.analyze import float_program
from quaver.cli.consoles import results_console
from quaver.cli.flags import as_in_a_recipe, like_option, with_flags_of
from quaver.cli.image_source import Source, Split, image_size_of, open_batches
from quaver.config.load import load_recipe
from quaver.config.recipe import QuantPhase
from quaver.errors import ConfigError


def _quantization(name: str) -> Any:
    return like_option(QuantPhase, name, "Quantization")


@dataclass(frozen=True, kw_only=True)
class TrainingImages(Source):
    """Images of the training set, in another order than by class."""

    split: Annotated[Split, typer.Option(help="Which images of a data set.", rich_help_panel="Data")] = Split.TRAIN
    shuffle: bool = True


@with_flags_of(TrainingImages, "source")
@with_flags_of(CalibrationOptions, "means", "Calibration")
def calibrate(
    out: Annotated[Path, typer.Argument(help="Folder for the calibrated program (quaver.save).")],
    source: TrainingImages,
    program: Annotated[Path | None, typer.Option(help="Folder of a float or prepared program, instead of --model.")] = None,
    model: Annotated[str, as_in_a_recipe("model")] = "",
    model_options: Annotated[str, as_in_a_recipe("model_options")] = "",
    pretrained_fp32_model: Annotated[str, as_in_a_recipe("pretrained_fp32_model")] = "",
    class_dim: Annotated[str, as_in_a_recipe("class_dim")] = "",
    image_shape: Annotated[str, as_in_a_recipe("image_shape")] = "",
    workers: Annotated[int, as_in_a_recipe("workers", min=0, show_default=True)] = 0,
    target: Annotated[str | None, _quantization("target")] = None,
    weight_bits: Annotated[str | None, _quantization("weight_bits")] = None,
    activation_bits: Annotated[str | None, _quantization("activation_bits")] = None,
    saturation_safe: Annotated[bool | None, _quantization("saturation_safe")] = None,
    *,
    means: CalibrationOptions,
) -> None:
    """Find ranges and correct weights from images of the training set, without training; quaver convert goes on from it."""
    from quaver.calibration import calibrate as run_calibration
    from quaver.program.storage import load, save

    named = {"model": model, "model_options": model_options, "class_dim": class_dim}
    named = {flag: value for flag, value in (named | {"pretrained_fp32_model": pretrained_fp32_model}).items() if value}
    if (program is None) == (not named):
        raise ConfigError(
            "calibrate: name a program's folder with --program, or a model with its weights: --model NAME "
            "--pretrained_fp32_model out/fp32.safetensors; one of the two."
        )
    quantization = {"target": target, "weight_bits": weight_bits, "activation_bits": activation_bits}
    chosen = {name: str(value) for name, value in quantization.items() if value is not None}
    if saturation_safe is not None:
        chosen["saturation_safe"] = str(saturation_safe)
    config = load_recipe(None, chosen, "quantize").quantize.quant_config() if chosen else None
    stored = None if program is None else load(program)
    training_images = open_batches(
        replace(source, image_shape=image_shape, workers=workers), image_size_of(stored) if stored else None
    )
    given = stored or float_program(named, training_images)
    calibrated = run_calibration(given, training_images.batches, config, **vars(means))
    save(calibrated, out)
    results_console().print(
        f"{out}: calibrated. quaver convert {out} FOLDER writes the files that engines run.", markup=False
    )
