"""What an engine asks of its files, and where a file does not keep to it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BrokenRule:
    """A place in a file that breaks a rule: which rule, at which node (empty: the whole file), and how, in words.

    ``fatal``: the engine refuses the file. Otherwise it runs, and slower than it could, or needs something to be said.
    """

    rule: str
    node: str
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        """One line."""
        place = f"{self.node!r}: " if self.node else ""
        return f"{place}{self.message} ({self.rule})"
