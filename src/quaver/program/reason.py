"""Why an op is float: small values, each with a sentence for people, which nobody has to read back."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from quaver.program.older_files import reason_in
from quaver.records import decoded


@dataclass(frozen=True)
class Reason:
    """Why an op does not compute on integers by itself; in files, ``kind`` says which class it is."""

    sentence: ClassVar[str]
    kind: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self).__name__)

    def words(self) -> str:
        """The reason as a sentence.

        >>> Folded("stem.0").words()
        "folded into 'stem.0'"
        """
        return self.sentence.format(**vars(self))

    @classmethod
    def from_json(cls, value: Any) -> "Reason":
        """The reason that a file holds; an older one has the sentence alone."""
        given: dict[str, str] = reason_in(value) if isinstance(value, str) else decoded(dict[str, str], value)
        return KINDS[given.pop("kind")](**given)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Because(Reason):
    """A reason that only people ask for."""

    sentence = "{text}"
    text: str


@dataclass(frozen=True)
class Folded(Reason):
    """A batch norm, a product or a sum with a constant, gone into the weight's step and the bias of its ``host``."""

    sentence = "folded into {host!r}"
    host: str


@dataclass(frozen=True)
class ComputedWith(Reason):
    """An activation, on what its ``host`` has not rounded yet."""

    sentence = "computed with {host!r} in one step, before the result is rounded"
    host: str


@dataclass(frozen=True)
class SkipPattern(Reason):
    """A user's pattern leaves it float."""

    sentence = "its scope {scope!r} contains the skip pattern {pattern!r}"
    scope: str
    pattern: str


@dataclass(frozen=True)
class NotListed(Reason):
    """No pass was asked for its type."""

    sentence = "{op_type!r} is not among the op types to quantize"
    op_type: str


ONLY_IN_TRAINING = Because("runs only in training")
READ_BY_NOBODY = Because("nothing that the model gives back depends on it")
READ_IN_FLOAT = Because("no quantized op computes on its output")
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Because, Folded, ComputedWith, SkipPattern, NotListed)}
