"""Which passes made a program what it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quaver.program.older_files import pass_in
from quaver.records import decoded


@dataclass(frozen=True)
class PassApplied:
    """A pass, and its options as Python writes them: among them are functions, which no file holds."""

    name: str
    options: dict[str, str]

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any]) -> "PassApplied":
        """With the options' values of now."""
        return cls(name, {key: repr(value) for key, value in options.items()})

    def words(self, *, used_only: bool = False) -> str:
        """The pass as Python writes it; with ``used_only``, without options that are None.

        >>> PassApplied.of("Round", {"bits": 8, "by": None}).words()
        'Round(bits=8, by=None)'
        """
        shown = [f"{key}={value}" for key, value in self.options.items() if not used_only or value != "None"]
        return f"{self.name}({', '.join(shown)})"

    @classmethod
    def from_json(cls, value: Any) -> "PassApplied":
        """The pass that a file holds; an older one has its words alone."""
        given = pass_in(value) if isinstance(value, str) else value
        return cls(decoded(str, given["name"]), decoded(dict[str, str], given["options"]))
