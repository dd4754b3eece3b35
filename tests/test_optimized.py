"""``python -O`` leaves out every ``assert``, and changes nothing that a user sees."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import quaver
from limits import AN_HOUR

pytestmark = pytest.mark.slow

SOURCE = Path(quaver.__file__).parent

REFUSALS = """
import sys
import numpy as np
import torch
import quaver

assert False, "assert is still heard"

def refused(do):
    try:
        do()
    except Exception as error:
        return type(error).__name__
    return "accepted"

good, changed = sys.argv[1:]
run = quaver.runtime.load(good)
print(refused(lambda: quaver.runtime.load(changed)))
print(refused(lambda: run(np.zeros((1, 2, 8, 8), np.float32))))
print(refused(lambda: run(np.zeros((1, 3, 8, 8), object))))
print(refused(lambda: quaver.runtime.load(good, threads=0)))
print(refused(lambda: quaver.capture("no model", (torch.zeros(1),))))
print(refused(lambda: quaver.QuantConfig(weight_bits=3.5)))
print(refused(lambda: quaver.QuantConfig(wait_bits=8)))
print(refused(lambda: quaver.load(changed)))
print(run(np.ones((1, 3, 8, 8), np.float32)).shape)
"""


def test_what_is_refused_is_refused_under_minus_o(tmp_path):
    program = quaver.capture(torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3)), (torch.zeros(2, 3, 8, 8),)).eval()
    good, changed = (quaver.export(program, tmp_path / name, target="onnx") for name in ("good", "changed"))
    beside = changed.with_name(f"{changed.name}.json")
    beside.write_text(json.dumps(json.loads(beside.read_text()) | {"checksum": "another"}))

    command = [sys.executable, "-O", "-c", REFUSALS, str(good), str(changed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AN_HOUR)

    expected = ["StorageError", "InputError", "InputError", "ConfigError", "InputError", "ConfigError", "ConfigError"]
    assert done.stdout.splitlines() == [*expected, "StorageError", "(1, 2, 6, 6)"], done.stderr[-2000:]


def test_nobody_waits_for_an_assertion_error_and_no_assert_does_anything():
    """What catches one checks input with it; what calls a method in one may change something there."""
    harmless = {"isinstance", "callable", "all", "any", "len", "set", "fields"}
    wrong = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = (
                [call.func for call in ast.walk(node) if isinstance(call, ast.Call)] if isinstance(node, ast.Assert) else []
            )
            if any(not isinstance(function, ast.Name) or function.id not in harmless for function in called):
                wrong.append(f"{path.name}:{node.lineno}: an assert that calls something")
            if isinstance(node, ast.ExceptHandler) and node.type and "AssertionError" in ast.unparse(node.type):
                wrong.append(f"{path.name}:{node.lineno}: an AssertionError is caught")

    assert wrong == []
