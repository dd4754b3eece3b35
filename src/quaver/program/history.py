"""Which passes made a program what it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quaver.errors import StorageError
from quaver.program.graph_json import decode, encode
from quaver.program.older_files import pass_in
from quaver.records import decoded


@dataclass(frozen=True)
class Written:
    """An option that no file holds, such as a function: all that is kept is how Python writes it."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class PassApplied:
    """A pass with its options as they were; ``said`` are the words of an older file, which does not hold all options."""

    name: str
    options: dict[str, Any]
    said: str = ""

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any]) -> "PassApplied":
        """With copies of the options."""
        return cls(name, {key: _kept(value) for key, value in options.items()})

    def words(self, *, used_only: bool = False) -> str:
        """The pass as Python writes it; with ``used_only``, without options that are None.

        >>> PassApplied("Round", {"bits": 8, "by": None}).words()
        'Round(bits=8, by=None)'
        """
        shown = [f"{key}={value!r}" for key, value in self.options.items() if value is not None or not used_only]
        return self.said or f"{self.name}({', '.join(shown)})"

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        options = {key: vars(value) if isinstance(value, Written) else encode(value) for key, value in self.options.items()}
        return {"name": self.name, "options": options, "said": self.said}

    @classmethod
    def from_json(cls, value: Any) -> "PassApplied":
        """The pass that a file holds; an older one has its words alone."""
        given = pass_in(value) if isinstance(value, str) else decoded(dict[str, Any], value)
        options = {
            key: Written(decoded(str, one["text"])) if isinstance(one, dict) and "text" in one else decode(one, {})
            for key, one in given["options"].items()
        }
        return cls(decoded(str, given["name"]), options, decoded(str, given["said"]))


def _kept(value: Any) -> Any:
    try:
        return decode(encode(value), {})
    except StorageError:
        return Written(repr(value))
