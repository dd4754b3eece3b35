"""What a command that looks at images is given: batches in several forms, and a model or a program."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from quaver.errors import InputError, StageError
from quaver.pipeline import quant_aware
from quaver.program import Program, Stage
from quaver.quantizers import Quantizer


def split(batch: Any, who: str) -> tuple[Tensor, Tensor | None]:
    """Images and labels of a batch, which may be images alone; ``who`` says so where it is neither."""
    if isinstance(batch, Tensor | np.ndarray):
        return torch.as_tensor(batch), None
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        raise InputError(f"{who}: a batch is images, or a pair (images, labels), not {type(batch).__name__}.")
    try:
        images, labels = torch.as_tensor(batch[0]), None if batch[1] is None else torch.as_tensor(batch[1])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{who}: a batch is a pair of tensors, images and labels; this one is not: {error}.") from error
    if labels is not None and (labels.dim() == 0 or len(labels) != len(images)):
        shape = list(labels.shape)
        raise InputError(f"{who}: a batch has {len(images)} images and labels of shape {shape}. Give each image a label.")
    return images, labels


def prepared(model: nn.Module, config: Any, images: Tensor, who: str) -> tuple[Program, bool]:
    """The program whose quantizers say where to look, and whether it was made here."""
    if not isinstance(model, Program):
        if any(isinstance(module, Quantizer) for module in model.modules()):
            raise StageError(
                f"{who}: the model's layers have quantizers of quaver.QAT. Give the program that it becomes, "
                "quanter.convert(net, input_spec), or the float model, quanter.remove(net)."
            )
        return quant_aware(model, config, example_inputs=(images,)), True
    if model.stage is Stage.FLOAT:
        return quant_aware(model.clone(), config), True
    if model.stage is Stage.MOBILE:
        raise StageError(f"{who}: a mobile program rounds as its engine does. Give the program that it was made from.")
    if config is not None:
        raise StageError(f"{who}: the program is {model.stage.value} already, and a config is for a float one.")
    model.settle()
    return model, False


def on_its_device(program: Program, images: Tensor) -> Tensor:
    """Images where the program's tensors are."""
    device = next((tensor.device for tensor in (*program.parameters(), *program.buffers())), None)
    return images.to(device)


@contextmanager
def said_of_images(who: str, images: Tensor) -> Iterator[None]:
    """What torch cannot compute is an error about the images that it was asked to compute with."""
    try:
        yield
    except RuntimeError as error:
        form = f"{images.dtype}, shape {list(images.shape)}"
        reason = str(error).partition("\n")[0]
        raise InputError(f"{who}: the network does not run on these images ({form}): {reason}") from error
