"""The package as the site shows it: doctests are blocks of code, and a name of ours leads to where it is explained."""

import re
from typing import Any

from griffe import Attribute, Class, Extension, Object

MARKDOWN = [
    (re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE), lambda block: f"```pycon\n{block[0].rstrip()}\n```\n"),
    (re.compile(r"(?<!`)`(quaver\.[\w.]+)`(?!`)"), r'<autoref identifier="\1" optional><code>\1</code></autoref>'),
    (re.compile(r"^::\n|(?<=:):$", re.MULTILINE), ""),  # what comes next is indented, which says enough
]


class Reference(Extension):
    """What is written for reading in the source, as Markdown."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite a docstring."""
        if obj.docstring:
            for pattern, markdown in MARKDOWN:
                obj.docstring.value = pattern.sub(markdown, obj.docstring.value)

    def on_class(self, *, cls: Class, **kwargs: Any) -> None:
        """Leave out what Python calls by itself, as ``__len__``."""
        for name in [name for name in cls.members if name.startswith("__") and name != "__init__"]:
            cls.del_member(name)

    def on_attribute_instance(self, *, attr: Attribute, **kwargs: Any) -> None:
        """A ``ClassVar`` without a type is none of a dataclass's arguments, either; griffe knows only those with one."""
        if str(attr.annotation) == "ClassVar":
            attr.labels.discard("instance-attribute")
