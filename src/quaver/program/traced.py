"""What of a model's modules is in a program's graphs for good, and what is said to who changes it there."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from quaver.errors import StageError


@dataclass(frozen=True)
class Traced:
    """Hooks that ran while the model was traced, by their numbers; the modules' classes; and their settings.

    ``modal`` are the modules that differ by mode: a stochastic depth, a block that calls ``F.dropout``. Of these each graph
    has what they do in its mode. ``settings`` are the plain attributes that modules computed by.
    """

    hooks: frozenset[int] = frozenset()
    classes: dict[str, type[nn.Module]] = field(default_factory=dict)
    modal: frozenset[str] = frozenset()
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)

    def refuse_others(self, root: nn.Module) -> None:
        """Refuse a module of another class in the place of one that the graph computes."""
        for path, module in root.named_modules():
            traced = self.classes.get(path, nn.Module)
            if not isinstance(module, _BatchNorm if issubclass(traced, _BatchNorm) else traced):
                raise StageError(
                    f"{path!r} is a {type(module).__name__} now, and was a {traced.__name__} when the model was captured: "
                    "the graph computes that one. Put it into the model, and capture that."
                )
