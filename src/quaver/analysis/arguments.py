"""What a command that looks at images is given: batches in several forms, and a model or a program."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from quaver.errors import InputError, StageError
from quaver.pipeline import quant_aware
from quaver.program import Program, Stage
from quaver.program.batch_inputs import read_batch, split_batch
from quaver.quantizers import Quantizer

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""What a model is called with: by position, and by name."""


def split(batch: Any, who: str) -> tuple[Tensor, Tensor | None]:
    """Images and labels of a batch, which may be images alone; ``who`` says so where it is neither."""
    (images,), labels = read_batch(batch, [""], who)
    return images, labels_of(labels, len(images), who)


def labels_of(labels: Any, images: int, who: str) -> Tensor | None:
    """Labels as a tensor, one for each image."""
    try:
        tensor = None if labels is None else torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{who}: a batch is a pair of tensors, images and labels; this one is not: {error}.") from error
    if tensor is not None and (tensor.dim() == 0 or len(tensor) != images):
        shape = list(tensor.shape)
        raise InputError(f"{who}: a batch has {images} images and labels of shape {shape}. Give each image a label.")
    return tensor


def example_call(model: nn.Module, batch: Any, who: str) -> Call:
    """How a batch calls the model, with copies of its first two images."""
    named = inspect.signature(model.forward).parameters.values()
    positional = [parameter for parameter in named if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    needed = [parameter for parameter in positional if parameter.default is parameter.empty]
    takes = len(model.signature.tensors) if isinstance(model, Program) else max(1, len(needed))
    given, _ = split_batch(batch, takes, who)
    if isinstance(given, tuple):
        return tuple(_first_two(value) for value in given), {}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in named)
    names = [name for name in given if takes_any or name in {parameter.name for parameter in named}]
    return (), {name: _first_two(given[name]) for name in names}


def _first_two(value: Any) -> Tensor:
    tensor = torch.as_tensor(value)
    return (tensor[:2] if tensor.dim() else tensor).clone()


def prepared(model: nn.Module, config: Any, example: Call, who: str) -> tuple[Program, bool]:
    """The program whose quantizers say where to look, and whether it was made here."""
    if not isinstance(model, Program):
        if any(isinstance(module, Quantizer) for module in model.modules()):
            raise StageError(
                f"{who}: the model's layers have quantizers of quaver.QAT. Give the program that it becomes, "
                "quanter.convert(net, input_spec), or the float model, quanter.remove(net)."
            )
        args, kwargs = example
        return quant_aware(model, config, example_inputs=args, example_kwargs=kwargs), True
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
def image_error_context(who: str, images: Tensor) -> Iterator[None]:
    """What torch cannot compute is an error about the images that it was asked to compute with."""
    try:
        yield
    except RuntimeError as error:
        form = f"{images.dtype}, shape {list(images.shape)}"
        reason = str(error).partition("\n")[0]
        raise InputError(f"{who}: the network does not run on these images ({form}): {reason}") from error
