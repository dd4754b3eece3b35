"""The language that help is given in: that of ``--lang``, which may stand anywhere on the command line, or the locale's.

Help is written in English where the flags are; a catalogue has, for each of these sentences, the one of another language.
"""

import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

USAGE_WORDS = ("Usage: ", "[OPTIONS]", "COMMAND [ARGS]...")
TITLES = ("ARGUMENTS_PANEL_TITLE", "OPTIONS_PANEL_TITLE", "COMMANDS_PANEL_TITLE", "DEFAULT_STRING", "REQUIRED_LONG_STRING")
"""Typer's own words: those in a line on usage, and the names of the others in `typer.rich_utils`."""


class Language(StrEnum):
    """A language that there is help in."""

    ENGLISH = "en"
    CHINESE = "zh"


class Catalogue:
    """What a language has for English sentences; one that is not in it stays as it is.

    ``{}`` in an entry stands for what a sentence is filled in with, such as the names of the engines.

    >>> Catalogue({"one of {}": "{} 之一", "None or {}": "None，或 {}"})("None or one of PACT")
    'None，或 PACT 之一'
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        self.entries = entries
        self.patterns = {key: re.compile(re.escape(key).replace(r"\{\}", "(.+)")) for key in entries if "{}" in key}

    def __call__(self, text: str) -> str:
        """A text in this language, paragraph by paragraph."""
        return "\n\n".join(self._translated(paragraph) for paragraph in paragraphs(text))

    def keys(self, sentence: str) -> list[str]:
        """The entries that a sentence is made of."""
        key, filled_in = self._entry_of(sentence)
        return [key, *(inner for part in filled_in for inner in self.keys(part))] if key else []

    def _translated(self, sentence: str) -> str:
        key, filled_in = self._entry_of(sentence)
        translation = self.entries.get(key, sentence)
        return translation.format(*map(self, filled_in)) if filled_in else translation

    def _entry_of(self, sentence: str) -> tuple[str, Sequence[str]]:
        """The entry of a sentence, and what it is filled in with there."""
        if sentence in self.entries:
            return sentence, ()
        matches = ((key, pattern.fullmatch(sentence)) for key, pattern in self.patterns.items())
        return next(((key, match.groups()) for key, match in matches if match), ("", ()))


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each in one line."""
    return [" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n")]


@cache
def catalogue(language: Language) -> Catalogue:
    """The catalogue of a language; that of English is empty."""
    if language is Language.ENGLISH:
        return Catalogue({})
    import tomllib  # help in English starts without it

    parts = tomllib.loads(files("quaver").joinpath("cli", f"{language}.toml").read_text("utf-8"))
    return Catalogue({english: sentence for part in parts.values() for english, sentence in part.items()})


def of_locale(environment: Mapping[str, str]) -> Language:
    """The language of the locale, looked for as gettext does: LANGUAGE is a list, and does not count where the locale is C.

    >>> [of_locale({"LANG": name}).value for name in ("zh_CN.UTF-8", "de_DE.UTF-8", "C.UTF-8", "")]
    ['zh', 'en', 'en', 'en']
    >>> of_locale({"LANG": "en_US.UTF-8", "LANGUAGE": "fr:zh_CN"}).value, of_locale({"LC_ALL": "C", "LANGUAGE": "zh"}).value
    ('zh', 'en')
    """
    locale = next((environment[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environment.get(name)), "")
    candidates = [] if locale in ("C", "POSIX") else [*environment.get("LANGUAGE", "").split(":"), locale]
    codes = (re.split(r"[_.@-]", name)[0].lower() for name in candidates)
    return next((Language(code) for code in codes if code in set(Language)), Language.ENGLISH)


def lang_first(arguments: Sequence[str]) -> list[str]:
    """A command line with its ``--lang`` in front, where it is known before help is asked for; alone, it asks for help.

    >>> lang_first(["quantize", "--help", "--lang", "zh"]), lang_first(["--lang=zh"]), lang_first(["test", "--", "--lang"])
    (['--lang', 'zh', 'quantize', '--help'], ['--lang=zh', '--help'], ['test', '--', '--lang'])
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for position, word in enumerate(arguments[:end]):
        if word == "--lang" or word.startswith("--lang="):
            after = position + (2 if word == "--lang" else 1)
            return [*arguments[position:after], *((*arguments[:position], *arguments[after:]) or ("--help",))]
    return list(arguments)


def _chosen(context: typer.Context, language: Language | None) -> Language | None:
    context.obj = language
    return language


Lang = Annotated[
    Language | None,
    typer.Option(
        help="Language of the help, anywhere on the command line; by default the locale's.", is_eager=True, callback=_chosen
    ),
]


class InLanguage:
    """Gives help in the language asked for; to stand in front of one of typer's classes."""

    def get_usage(self, ctx: Any) -> str:
        """How it is called, in a line."""
        line: str = super().get_usage(ctx)  # type: ignore[misc]
        for word in USAGE_WORDS:
            line = line.replace(word, _catalogue_for(ctx).entries.get(word, word))
        return line

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        with _translated(self, ctx):
            super().format_help(ctx, formatter)  # type: ignore[misc]


class TranslatedCommand(InLanguage, TyperCommand):
    """A command."""


class TranslatedGroup(InLanguage, TyperGroup):
    """The commands, and the language that is common to them."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        """Run a command."""
        return super().main(lang_first(sys.argv[1:] if args is None else args), *more, **options)


def _catalogue_for(context: Any) -> Catalogue:
    """That of the language asked for, or of the locale's where the screen can show it."""
    if context.obj:
        return catalogue(context.obj)
    try:
        "中文".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return catalogue(Language.ENGLISH)
    return catalogue(of_locale(os.environ))


@contextmanager
def _translated(command: Any, context: Any) -> Iterator[None]:
    """Have another language say what a command's help consists of; the command is made anew for each command line."""
    translate = _catalogue_for(context)
    if not translate.entries:
        yield
        return
    for part in (command, *getattr(command, "commands", {}).values(), *command.get_params(context)):
        for what in ("help", "rich_help_panel"):
            if text := getattr(part, what, None):
                setattr(part, what, translate(text))
    with _typer_in(translate):
        yield


@contextmanager
def _typer_in(translate: Catalogue) -> Iterator[None]:
    """Have typer say its own words in another language, and break lines as that is written."""
    from typer import rich_utils  # loaded where help is asked for, and only there

    from quaver.cli.wrapping import WrappingText

    before = {name: getattr(rich_utils, name) for name in (*TITLES, "highlighter")}
    spoken: dict[str, Any] = {title: translate(before[title]) for title in TITLES}
    spoken["highlighter"] = lambda text: WrappingText.of(before["highlighter"](text))
    try:
        for name, value in spoken.items():
            setattr(rich_utils, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(rich_utils, name, value)
