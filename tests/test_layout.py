"""The folder list tells the journey: each part imports only what stands above it, and docs/layout.md lists them all."""

import ast
from pathlib import Path

import quaver

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "quaver"
ORDER = [
    "errors",
    "locks",
    "files",
    "reading",
    "records",
    "formats",
    "stores",
    "silence",
    "machine",
    "grid",
    "graph",
    "operators",
    "targets",
    "config",
    "quantizers",
    "int8",
    "program",
    "data",
    "nn",
    "models",
    "detection",
    "capture",
    "passes",
    "training",
    "pipeline",
    "analysis",
    "runtime",
    "export",
    "eager",
    "measure",
    "deployment",
    "experiment",
    "report",
    "cli",
]


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.split(".")[1] for name in names if name and name.startswith("quaver."))


def test_every_part_has_its_place_in_the_order():
    parts = {part_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}

    assert parts == set(ORDER)


def test_a_part_imports_only_what_stands_above_it():
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in SOURCE.rglob("*.py")
        if part_of(path) in ORDER
        for name in imports(path)
        if ORDER.index(name) > ORDER.index(part_of(path))
    ]

    assert wrong == []


def test_the_layout_page_lists_the_parts_in_order():
    text = (ROOT / "docs" / "layout.md").read_text()
    listed = [line.split("`")[1].strip("/").removesuffix(".py") for line in text.splitlines() if line.startswith("| `")]

    assert listed == ORDER


def test_the_public_names_are_sorted_and_there():
    assert quaver.__all__ == sorted(quaver.__all__, key=lambda name: (not name.isupper(), name.islower(), name))
    assert all(hasattr(quaver, name) for name in quaver.__all__)


def test_importing_quaver_needs_neither_an_engine_nor_the_command_line():
    import subprocess
    import sys

    code = "import sys, quaver; print([m for m in ('openvino', 'onnx', 'typer', 'rich', 'executorch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
