"""Options as dataclass fields that carry their own rule and words: a config's key, a flag and its help are one thing."""

from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any, Self, TypeVar

from quaver.checking import Rule, anything, check

Kind = TypeVar("Kind", bound=type)


def option(default: Any, rule: Rule, help: str, same_as: str = "", also: tuple[str, ...] = (), *, repr: bool = True) -> Any:
    """A field with a default, the rule its values keep to, and what it does in a sentence.

    ``also`` are other names of it, which scripts that people have call it by.
    """
    metadata = {"default": default, "rule": rule, "help": help, "same_as": same_as, "also": also}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, repr=repr, metadata=metadata)


def like(kind: type, name: str, **changes: Any) -> Any:
    """An option of another dataclass, for a field with another name, default, rule or sentence."""
    return option(**({**options_of(kind)[name].metadata} | {"same_as": name} | changes))


def options_of(kind: type) -> dict[str, "Field[Any]"]:
    """The options of a dataclass by name; fields that are tables of options themselves are left out."""
    return {entry.name: entry for entry in fields(kind) if "rule" in entry.metadata}


def other_names(*kinds: type) -> dict[str, str]:
    """What the options of dataclasses are called besides, and their names here."""
    return {other: name for kind in kinds for name, entry in options_of(kind).items() for other in entry.metadata["also"]}


def rules_of(kind: type) -> dict[str, Rule]:
    """What each option of a dataclass may be."""
    return {name: entry.metadata["rule"] for name, entry in options_of(kind).items()}


def shared_options(given: Any, kind: type) -> dict[str, Any]:
    """The options that ``kind`` takes too, by its names or by those that its own stand for."""
    return {
        key: getattr(given, name)
        for name, entry in options_of(type(given)).items()
        if (key := entry.metadata["same_as"] or name) in options_of(kind)
    }


_PLAIN = anything()


class Checked:
    """Makes a dataclass of options refuse what it cannot take: every problem at once, each with the nearest right word."""

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Checked here, before ``__init__`` could answer a misspelt key with a TypeError."""
        plain_fields: Any = cls  # those of a subclass need not be options
        in_order = [entry.name for entry in fields(plain_fields) if not entry.kw_only]
        options |= dict(zip(in_order, args, strict=False))  # more of them than there are is Python's own error
        check(cls.__name__, options, dict.fromkeys((entry.name for entry in fields(plain_fields)), _PLAIN) | rules_of(cls))
        return super().__new__(cls)


def lists_options(kind: Kind) -> Kind:
    """Let ``help`` of a dataclass say what each of its options does."""
    lines = [f"    {name}: {entry.metadata['help']}" for name, entry in options_of(kind).items()]
    kind.__doc__ = "\n".join([f"{kind.__doc__ or ''}\n", *lines])
    return kind


# The words that Python's own strtobool took, and with it the scripts that people have.
TRUTHS = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True)
TRUTHS |= dict.fromkeys(("false", "f", "no", "n", "off", "0"), False)


def as_value(written: Any, default: Any, choices: tuple[str, ...] = ()) -> Any:
    """What was written in a recipe or behind a flag, in the type of the option's default, or as one of its choices.

    Only what is sure to be meant is changed; the rest is left as it is, for the rules to refuse.

    >>> as_value("1e-4", 0.1), as_value("30,60", (1,)), as_value("True", False), as_value(2, 0.5)
    (0.0001, (30, 60), True, 2.0)
    >>> as_value("True", "auto", ("auto", "true", "false"))
    'true'
    >>> as_value("scale=0.5,depth=2", {})
    {'scale': 0.5, 'depth': 2}
    """
    if isinstance(default, bool):
        return TRUTHS.get(str(written).lower(), written)
    if isinstance(default, int | float):
        return _number(written, type(default))
    if isinstance(default, str):
        return _chosen(written, choices) if choices else _joined(written)
    if isinstance(default, tuple):
        parts = [part.strip() for part in written.split(",") if part.strip()] if isinstance(written, str) else written
        return tuple(_guessed(part) for part in parts) if isinstance(parts, list | tuple) else written
    if isinstance(default, Mapping) and isinstance(written, str):
        pairs = [part.partition("=") for part in written.split(",") if part.strip()]
        return {key.strip(): _guessed(value.strip()) for key, sign, value in pairs} if all(p[1] for p in pairs) else written
    return written


def as_written(value: Any) -> str:
    """What to write behind a flag so that `as_value` reads this value.

    >>> as_written({"scale": 0.5, "small": True}), as_written((10, 13)), as_written("3,8,8")
    ('scale=0.5,small=true', '10,13', '3,8,8')
    """
    if isinstance(value, Mapping):
        return ",".join(f"{key}={as_written(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ",".join(as_written(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _chosen(written: Any, choices: tuple[str, ...]) -> Any:
    """The choice that is meant, whatever its case; true and false in any of their words (YAML reads ``off`` as false)."""
    word = str(written).lower()
    meant = [choice for choice in choices if choice.lower() == word]
    meant += [choice for choice in choices if word in TRUTHS and TRUTHS.get(choice) is TRUTHS[word]]
    return meant[0] if meant else written


def _number(written: Any, kind: type) -> Any:
    if isinstance(written, bool):
        return written
    try:
        return kind(written) if isinstance(written, str) or kind is float else written
    except (TypeError, ValueError, OverflowError):
        return written


def _joined(written: Any) -> Any:
    """``[3, 224, 224]`` as ``3,224,224``, and a number as its digits: a folder may be called 2012."""
    if isinstance(written, list | tuple):
        return ",".join(str(part) for part in written)
    return str(written) if isinstance(written, int | float) else written


def _guessed(part: Any) -> Any:
    """A word as the number or the truth it spells, if it spells one."""
    if not isinstance(part, str):
        return part
    for kind in (int, float):
        try:
            return kind(part)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(part.lower(), part)
