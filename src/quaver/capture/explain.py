"""Say which module and which line of a model's source kept it from being captured."""

import re
from pathlib import Path

import torch
from torch import nn

from quaver.errors import CaptureError
from quaver.source_lines import source_lines

_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)
_CAUSE = re.compile(r"Caused by: \((.+?:\d+) in ")  # what torch says where its own frames are all there is


def explain(model: nn.Module, error: BaseException) -> CaptureError:
    """The error in the user's terms: module, source line, what it did, and what else can be done."""
    names = {id(module): name for name, module in model.named_modules()}
    module, line = _innermost(error, names)
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
    phrases = ("data-dependent", "GuardOnDataDependent", "unbacked", "Could not guard", "Dynamic control flow")
    return any(word in f"{type(error).__name__}: {error}" for word in phrases)


def _innermost(error: BaseException, names: dict[int, str]) -> tuple[nn.Module | None, str]:
    """The last module of the model that was running, and the last line outside of torch.

    Where that is in a function that the model calls, the model's own line goes before it.
    """
    everywhere = source_lines(error.__traceback__, without=())
    modules = [line.owner for line in everywhere if isinstance(line.owner, nn.Module) and id(line.owner) in names]
    outside = source_lines(error.__traceback__, without=(_TORCH, _HERE))
    own = [line for line in outside if id(line.owner) in names]
    places = dict.fromkeys(str(line) for line in (*own[-1:], *outside[-1:]))
    causes = [] if places else _CAUSE.findall(str(error))
    return next(reversed(modules), None), ", ".join((*places, *causes[:1]))


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text else "(no message)"
