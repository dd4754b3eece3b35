"""Names that are imported when they are asked for are the ones that type checkers see, and a function stays a function."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import quaver

SOURCE = Path(quaver.__file__).parent
PACKAGES = sorted(
    ".".join(("quaver", *path.parent.relative_to(SOURCE).parts))
    for path in SOURCE.rglob("__init__.py")
    if "on_demand(" in path.read_text()
)


def for_type_checkers(package):
    """Name by name, the module it is imported from under TYPE_CHECKING; nothing where it is a module of the package."""
    (block,) = (
        node
        for node in ast.parse(Path(import_module(package).__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.name: imported.module.removeprefix(package).removeprefix(".")
        for imported in block.body
        for alias in imported.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_there_is(package):
    module = import_module(package)

    assert for_type_checkers(package) == module._places
    assert set(module.__all__) >= set(module._places)
    assert set(dir(module)) >= set(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error_as_ever():
    with pytest.raises(AttributeError, match="module 'quaver' has no attribute 'exports'"):
        quaver.exports  # noqa: B018


FUNCTIONS = """
import quaver.capture.capture, quaver.export.integers, quaver.calibration.calibrate
assert "torch" in __import__("sys").modules
print([callable(one) for one in (quaver.capture, quaver.export, quaver.calibrate, quaver.calibration.calibrate)])
"""


@pytest.mark.slow
def test_a_function_is_not_replaced_by_the_module_of_its_name():
    done = subprocess.run([sys.executable, "-c", FUNCTIONS], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[True, True, True, True]"


def test_importing_quaver_and_its_runtime_and_its_options_needs_no_torch():
    code = "import sys, quaver, quaver.runtime, quaver.config; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
