"""The benchmarks are run by hand, and rarely: here it is seen that what they import is there."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
SCRIPTS = sorted(file.stem for file in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_finds_what_it_imports(name, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    try:
        module = importlib.import_module(name)
    finally:
        for own in set(SCRIPTS) & (set(sys.modules) - before):
            del sys.modules[own]

    assert module.__file__ == str(FOLDER / f"{name}.py")
