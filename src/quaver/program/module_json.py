"""Batch norms and dropouts of a program as JSON and back: a program that was read has them as torch's own modules."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from quaver.program.stateful_ops import stateful_nodes

_KINDS: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
        *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
    )
}


@dataclass(frozen=True)
class SavedModule:
    """A batch norm or dropout: the class of torch's that it is, its mode, and its settings."""

    kind: str
    training: bool
    eps: float = 0.0
    momentum: float | None = None
    track_running_stats: bool = True
    affine: bool = True
    features: int = 0
    p: float = 0.0

    @classmethod
    def of(cls, module: Any) -> "SavedModule | None":
        """That of a module; None of one that is a kind of its own, whose ops keep the settings of the capture."""
        kind = next((base.__name__ for base in type(module).__mro__ if base in _KINDS.values()), None)
        if kind is None:
            return None
        if not isinstance(module, _BatchNorm):
            return cls(kind, module.training, p=float(module.p))
        momentum = None if module.momentum is None else float(module.momentum)
        tracking, affine = bool(module.track_running_stats), bool(module.affine)
        return cls(kind, module.training, float(module.eps), momentum, tracking, affine, module.num_features)

    def made(self) -> nn.Module:
        """The module, without its tensors, which have their own place in a file."""
        made: Any = _KINDS[self.kind]
        if not issubclass(made, _BatchNorm):
            return made(self.p)  # type: ignore[no-any-return]
        with torch.device("meta"):
            norm = made(0, self.eps, self.momentum, affine=False, track_running_stats=False)
        norm.num_features, norm.track_running_stats, norm.affine = self.features, self.track_running_stats, self.affine
        return norm  # type: ignore[no-any-return]


def describe_modules(root: nn.Module, graphs: Iterable[fx.Graph]) -> dict[str, Any]:
    """The batch norms and dropouts that graphs ask, by their paths."""
    stateful = {path: module for _, path, module in stateful_nodes(root, *graphs)}
    saved = {path: SavedModule.of(module) for path, module in stateful.items()}
    return {path: asdict(module) for path, module in saved.items() if module is not None}
