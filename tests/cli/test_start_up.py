"""Help and the version come at once: nothing is imported for them that takes long."""

import subprocess
import sys

import quaver

SLOW = ("torch", "numpy", "PIL", "onnx", "openvino", "onnxruntime", "executorch", "jinja2")
EVERY_HELP = f"""
import sys
import typer
from typer.testing import CliRunner
from quaver.cli.main import app

for command in ["", *typer.main.get_command(app).commands]:
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0
print([name for name in {SLOW} if name in sys.modules])
"""


def test_no_help_imports_torch_or_numpy_or_an_engine():
    done = subprocess.run([sys.executable, "-c", EVERY_HELP], capture_output=True, text=True)

    assert done.stdout.strip() == "[]", done.stderr[-2000:]


def test_the_version_is_shown():
    done = subprocess.run([sys.executable, "-m", "quaver", "--version"], capture_output=True, text=True, check=True)

    assert done.stdout == f"quaver {quaver.__version__}\n"
