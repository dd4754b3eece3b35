"""Names of a package that are imported when they are first asked for: the runtime and the help need no torch."""

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package with names that are not there yet: for each, the module that has it, or nothing where it is a module."""

    _places: dict[str, str]

    def __getattr__(self, name: str) -> Any:
        if name not in self._places:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        place = self._places[name]
        if not place:
            return import_module(f"{self.__name__}.{name}")
        try:
            value = getattr(import_module(f"{self.__name__}.{place}"), name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"{self.__name__}.{name} needs {error.name}, which is not installed. Install Quaver in full: quaver-runtime "
                "is for machines that only run artefacts.",
                name=error.name,
            ) from error
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Python sets each module of a package as it is imported: `quaver.export` is to stay the function
        if self._places.get(name) and value is sys.modules.get(f"{self.__name__}.{name}"):
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._places})


def on_demand(package: str, names: Mapping[str, str]) -> None:
    """Let a package have names by the modules in it that they come from; ``""`` has those that are modules themselves.

    What type checkers see stands beside the call, as imports that are never made.
    """
    module: Any = sys.modules[package]
    module._places = {name: place for place, several in names.items() for name in several.split()}
    module.__class__ = _Package
