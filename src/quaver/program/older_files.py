"""Files of versions that saved sentences alone, as what files hold today. Here, and nowhere else, a sentence is read."""

import re
from ast import literal_eval
from contextlib import suppress
from typing import Any


def _quoted(name: str) -> str:
    """A name as `repr` writes it."""
    return rf"""(?P<{name}>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""


_REASONS = {
    "Folded": f"folded into {_quoted('host')}",
    "ComputedWith": f"computed with {_quoted('host')} in one step, .*",
    "SkipPattern": f"its scope {_quoted('scope')} contains the skip pattern {_quoted('pattern')}",
    "NotListed": f"{_quoted('op_type')} is not among the op types to quantize",
}


def reason_in(sentence: str) -> dict[str, str]:
    """What stands for a reason today."""
    for kind, form in _REASONS.items():
        if match := re.fullmatch(form, sentence):
            with suppress(ValueError, SyntaxError):  # not as we quote
                return {"kind": kind} | {name: str(literal_eval(text)) for name, text in match.groupdict().items()}
    return {"kind": "Because", "text": sentence}


def pass_in(step: str) -> dict[str, Any]:
    """What stands for a pass today: whatever its options hold, put together they are the same words again."""
    name, _, options = step.removesuffix(")").partition("(")
    parts = (part.partition("=") for part in re.split(r", (?=\w+=)", options) if part)
    return {"name": name, "options": {key: value for key, _, value in parts}}
