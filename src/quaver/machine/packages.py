"""Versions of what is installed."""

from importlib.metadata import PackageNotFoundError, version


def version_of(package: str) -> str:
    """A package's version; empty where it is not installed, or only unpacked."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
