"""Run every script of this folder, each in a process of its own, and print the table for docs/results.md.

What a script tries is the first line of its docstring, ``library: what``; what came of it is the last line that it prints.
"""

import ast
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
OURS = ("conftest", "deploy", "run", "torchvision_ops")
RUN = "import runpy, sys, torchvision_ops; runpy.run_path(sys.argv[1])"  # which has to come before torchvision


def result(script: Path) -> tuple[bool, str]:
    """Whether a script ended well, and the last line that it printed."""
    settings = os.environ | {"PYTHONPATH": str(HERE), "YOLO_OFFLINE": "true", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        settings["YOLO_CONFIG_DIR"] = folder
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(script)], capture_output=True, text=True, cwd=folder, env=settings, check=False
        )
    if done.returncode:
        return False, done.stderr.strip().splitlines()[-1]
    line = done.stdout.strip().splitlines()[-1]
    warned = [text for text in done.stderr.splitlines() if "QuaverWarning" in text]
    return line.endswith("passed"), "; ".join([line, *warned])


def main() -> int:
    """The table, and 1 where a script failed."""
    print("| library | version | tried | result |\n|---|---|---|---|")
    all_passed = True
    for script in sorted(HERE.glob("*.py")):
        if script.stem in OURS:
            continue
        library, _, tried = (ast.get_docstring(ast.parse(script.read_text())) or "").rstrip(".").partition(": ")
        passed, words = result(script)
        all_passed &= passed
        print(f"| {library} | {version(library)} | {tried} | {words} |", flush=True)
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
