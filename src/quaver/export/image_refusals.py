"""Where a file cannot take images as it is told to, in words."""

from quaver.engines import ENGINES, Engine, WriteOptions
from quaver.errors import ConfigError, EngineError
from quaver.image_input import ImageInput
from quaver.preprocessing import Preprocessing
from quaver.program import Program


def refuse_other_images(program: Program, engine: Engine, options: WriteOptions) -> None:
    """Refuse an engine whose files do not take bytes, and what does not fit the images that a program takes."""
    image = options.image
    if image is not None:
        _refuse_other_input(program, engine, image)
    prepared = options.preprocessing or program.preprocessing
    if prepared is not None:
        _refuse_other_sizes(program, prepared)
    if image is not None and prepared is not None and not prepared.agrees_with(image):
        raise ConfigError(
            f"export: image= has the mean {image.mean} and std {image.std} (unit {image.unit}), and images were prepared "
            f"with {prepared.mean} and {prepared.std} (unit {prepared.unit}). Give both alike: image=preprocessing.image()."
        )


def _refuse_other_input(program: Program, engine: Engine, image: ImageInput) -> None:
    if not isinstance(image, ImageInput):
        raise ConfigError(f"export: image={image!r}: takes a quaver.ImageInput, with the mean and std of training.")
    if not engine.takes_bytes:
        able = ", ".join(name for name, other in ENGINES.items() if other.takes_bytes)
        raise EngineError(
            f"export to {engine.name}: image=: files for {engine.title} take float tensors. Prepare the images in front of "
            f"it, or export for an engine whose files take bytes: {able}."
        )
    if image.size is not None and not engine.scales_images:
        able = ", ".join(name for name, other in ENGINES.items() if other.scales_images)
        raise EngineError(
            f"export to {engine.name}: image=ImageInput(size={image.size}): files for {engine.title} do not scale images. "
            f"Scale them in front of it and leave size out, or export for an engine whose files do: {able}."
        )
    leaves = program.signature.tensors
    fits = len(leaves) == 1 and len(leaves[0].shape) == 4 and leaves[0].dtype.is_floating_point
    if not fits or leaves[0].shape[1] != image.channels:
        raise ConfigError(
            f"export: image=: stands for one float input of images with {image.channels} channels (NCHW), and the program "
            f"takes {_inputs(program)}. Export it without, or give mean and std for its channels."
        )


def _refuse_other_sizes(program: Program, preprocessing: Preprocessing) -> None:
    if not isinstance(preprocessing, Preprocessing):
        raise ConfigError(f"export: preprocessing={preprocessing!r}: takes a quaver.Preprocessing.")
    wanted = (len(preprocessing.mean), *preprocessing.size)
    if [leaf.takes((leaf.sizes(1)[0], *wanted)) for leaf in program.signature.tensors] != [True]:
        raise ConfigError(
            f"export: preprocessing= gives images of {wanted} (channels, height, width), and the program takes "
            f"{_inputs(program)}. Give the size that the program was captured for."
        )


def _inputs(program: Program) -> str:
    return ", ".join(f"{leaf.name!r} {tuple(leaf.shape)}" for leaf in program.signature.tensors)
