"""The templates of the page, filled in. All that is put into them is escaped, but for what is marked as HTML already."""

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from quaver.report.words import percent


def rendered(template: str, **content: Any) -> str:
    """A template of this package with its content."""
    return _environment().get_template(template).render(content)


def asset(name: str) -> Markup:
    """A style sheet or script of this package, to be put into a page as it is."""
    return Markup(files("quaver.report").joinpath("assets", name).read_text("utf-8"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("quaver.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "plain": "{:g}".format}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment
