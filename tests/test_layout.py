"""The folder list tells the journey: each part imports only what stands above it, and docs/layout.md lists them all."""

import ast
from pathlib import Path

import quaver
from quaver.engines import FOLDERS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "quaver"
ORDER = [
    "on_demand",
    "errors",
    "checking",
    "locks",
    "files",
    "reading",
    "records",
    "formats",
    "stores",
    "source_lines",
    "log_suppression",
    "garbage",
    "machine",
    "grid",
    "image_layouts",
    "image_scaling",
    "image_input",
    "preprocessing",
    "operators",
    "graph",
    "engines/*.py",
    "quantizers",
    "config",
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
    "calibration",
    "runtime",
    "onnx",
    "xnnpack",
    "engines/*",
    "export",
    "eager",
    "measure",
    "deployment",
    "experiment",
    "report",
    "cli",
]


def part_of(*path):
    """The part that a file or a module belongs to: what all engines share is one, their folders are another."""
    first = path[0].removesuffix(".py")
    if first != "engines":
        return first
    return "engines/*" if len(path) > 1 and path[1] in FOLDERS else "engines/*.py"


def imports(path, tree):
    """The modules of ours that a file imports, less those for types alone, and an engine's own."""
    own = path.relative_to(SOURCE).parts[:2]
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules = [tuple(name.split(".")[1:]) for name in names if name and name.startswith("quaver.")]
        yield from (module for module in modules if part_of(*module) != "engines/*" or module[:2] != own)
        yield from imports(path, node)


def test_every_part_has_its_place_in_the_order():
    parts = {part_of(*path.relative_to(SOURCE).parts) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}

    assert parts == set(ORDER)


def test_a_part_imports_only_what_stands_above_it():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        part = part_of(*path.relative_to(SOURCE).parts)
        if part not in ORDER or (
            part == "engines/*" and path.name == "__init__.py"
        ):  # which imports what it needs when called
            continue
        for module in imports(path, ast.parse(path.read_text())):
            if ORDER.index(part_of(*module)) > ORDER.index(part):
                wrong.append(f"{path.relative_to(ROOT)} imports {'.'.join(module)}")

    assert wrong == []


def test_nobody_names_an_engine_but_its_own_folder():
    named = [
        f"{path.relative_to(ROOT)} imports {'.'.join(module)}"
        for path in SOURCE.rglob("*.py")
        for module in imports(path, ast.parse(path.read_text()))
        if part_of(*module) == "engines/*"
    ]

    assert named == []


def test_the_layout_page_lists_the_parts_in_order():
    text = (ROOT / "docs" / "layout.md").read_text()
    listed = [line.split("`")[1].strip("/") for line in text.splitlines() if line.startswith("| `")]
    listed = [name if "*" in name else name.removesuffix(".py") for name in listed]

    assert listed == ORDER


def test_the_public_names_are_sorted_and_there():
    assert quaver.__all__ == sorted(quaver.__all__, key=lambda name: (not name.isupper(), name.islower(), name))
    assert all(hasattr(quaver, name) for name in quaver.__all__)


def test_importing_quaver_needs_neither_an_engine_nor_the_command_line():
    import subprocess
    import sys

    heavy = ("openvino", "onnx", "typer", "rich", "executorch", "ai_edge_litert")
    code = f"import sys, quaver; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
