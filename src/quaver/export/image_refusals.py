"""Where a file cannot take a camera's bytes, in words."""

from quaver.engines import ENGINES, Engine
from quaver.errors import ConfigError, EngineError
from quaver.image_input import ImageInput
from quaver.program import Program


def refuse_other_images(program: Program, engine: Engine, image: ImageInput) -> None:
    """Refuse an engine whose files do not take bytes, and a program that takes no such images."""
    if not isinstance(image, ImageInput):
        raise ConfigError(f"export: image={image!r}: takes a quaver.ImageInput, with the mean and std of training.")
    if not engine.takes_bytes:
        able = ", ".join(name for name, other in ENGINES.items() if other.takes_bytes)
        raise EngineError(
            f"export to {engine.name}: image=: files for {engine.title} take float tensors. Prepare the images in front of "
            f"it, or export for an engine whose files take bytes: {able}."
        )
    leaves = program.signature.tensors
    fits = len(leaves) == 1 and len(leaves[0].shape) == 4 and leaves[0].dtype.is_floating_point
    if not fits or leaves[0].shape[1] != image.channels:
        taken = ", ".join(f"{leaf.name!r} {tuple(leaf.shape)}" for leaf in leaves)
        raise ConfigError(
            f"export: image=: stands for one float input of images with {image.channels} channels (NCHW), and the program "
            f"takes {taken}. Export it without, or give mean and std for its channels."
        )
