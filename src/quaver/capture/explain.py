"""Say which module and which line of a model's source kept it from being captured."""

import linecache
import traceback
from pathlib import Path
from types import TracebackType

import torch
from torch import nn

from quaver.errors import CaptureError

_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)


def explain(model: nn.Module, error: BaseException) -> CaptureError:
    """The error in the user's terms: module, source line, what it did, and what else can be done."""
    names = {id(module): name for name, module in model.named_modules()}
    module, line = _innermost(error.__traceback__, names)
    inner = module is not None and module is not model
    where = f"module {names[id(module)]!r} ({type(module).__name__})" if inner else type(model).__name__
    place = f"{where}, {line}" if line else where
    if depends_on_data(error):
        fact = f"{place}: what happens next depends on the values in a tensor, and a graph has no place for that choice."
        return CaptureError(
            f"{fact} Decide by shapes or attributes instead, or use quaver.QAT, which quantizes the live model and lets its "
            "Python run as it is.",
            fact,
        )
    fact = f"{place}: the model could not be traced: {type(error).__name__}: {_first_line(error)}."
    return CaptureError(
        f"{fact} If the model runs on these example inputs by itself, quaver.QAT can take it without a graph.", fact
    )


def depends_on_data(error: BaseException | None) -> bool:
    """Whether a tracer gave up at a choice that depends on the values in a tensor."""
    signs = ("data-dependent", "GuardOnDataDependent", "unbacked", "Could not guard", "Dynamic control flow")
    return any(word in f"{type(error).__name__}: {error}" for word in signs)


def _innermost(tb: TracebackType | None, names: dict[int, str]) -> tuple[nn.Module | None, str]:
    """The last module of the model that was running, and the last line outside of torch."""
    module, line = None, ""
    for frame, number in traceback.walk_tb(tb):
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            module = owner
        filename = frame.f_code.co_filename
        if not filename.startswith((_TORCH, _HERE, "<")):
            line = f"{filename}:{number}: {linecache.getline(filename, number).strip()!r}"
    return module, line


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text else "(no message)"
