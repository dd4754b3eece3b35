"""The templates of the page, filled in. Everything put into them is escaped, except our own style sheet and scripts."""

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from quaver.report.number_format import percent


def rendered(template: str, **content: Any) -> str:
    """A template of this package with its content."""
    return _environment().get_template(template).render(content)


def asset(name: str) -> str:
    """A style sheet or script of this package."""
    return files("quaver.report").joinpath("assets", name).read_text("utf-8")


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
