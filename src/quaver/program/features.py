"""``quaver.feature_extractor``: a program's outputs together with tensors on the way, for feature distillation."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from quaver.errors import InputError
from quaver.program.program import Program
from quaver.program.runtime_graph import check_features


def feature_extractor(program: Program, names: Sequence[str]) -> "FeatureExtractor":
    """A module around a program that gives its outputs and, by name, tensors that it computes on the way.

    A name is the path of a module, ``"layer3"``, whose output is meant, with ``"layer3@1"`` for its second call; or the
    name of an op in ``program.ops()``. The tensors have their gradients. The program is the one given, with its parameters
    and its mode: train through the extractor, convert the program. What the program computes stays the same to the bit.

    >>> import torch, quaver
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    >>> student = feature_extractor(quaver.capture(net, torch.zeros(1, 3, 8, 8)), ["1"])
    >>> output, features = student(torch.zeros(5, 3, 8, 8))
    >>> output.shape, features["1"].shape
    (torch.Size([5, 2]), torch.Size([5, 4, 6, 6]))
    """
    if not isinstance(program, Program):
        raise InputError(f"feature_extractor: takes a Program, not {type(program).__name__}. quaver.capture makes one.")
    wanted = (names,) if isinstance(names, str) else tuple(names)
    check_features(program, wanted)
    return FeatureExtractor(program, wanted)


class FeatureExtractor(nn.Module):
    """A program that gives back features, too; made by `quaver.feature_extractor`."""

    def __init__(self, program: Program, names: tuple[str, ...]) -> None:
        super().__init__()
        self.program, self.names = program, names
        self.training = program.training

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Tensor]]:
        """What the program gives back, and the features by name."""
        output, features = self.program.with_features(self.names, *args, **kwargs)
        return output, dict(zip(self.names, features, strict=True))
