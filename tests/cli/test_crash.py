"""``quaver quantize`` killed with kill -9 at random moments and gone on with leaves the very files of a run that was not."""

import json
import os
import sys
from pathlib import Path

import pytest

import quaver
from children import child

TESTS, SOURCE = Path(__file__).parent.parent, Path(quaver.__file__).parent.parent

# One process that forks children, so that torch is imported once.
KILLING = """
import json, os, random, signal
import torch
torch.set_num_threads(1)
import openvino, onnx, onnxscript, torch.onnx
from quaver.cli.main import app

random.seed(5)
FLAGS = ["--model", "tiny:net", "--image_shape", "3,8,8", "--float_epochs", "1", "--num_epochs", "2", "--batch_size", "64",
         "--checkpoint_period", "4", "--ema", "0.9", "--lr", "0.05", "--verify_images", "40"]


def forked(out, *more, die=None):
    child = os.fork()
    if child == 0:
        log = os.open(out + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2)
        if die:
            die_at(*die)
        try:
            app(["quantize", *FLAGS, "--model_save_dir", out, *more])
        except SystemExit as end:
            os._exit(end.code or 0)
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(owner, name, nth):
    works, calls = getattr(owner, name), []

    def function(*args, **kwargs):
        calls.append(1)
        if len(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return works(*args, **kwargs)

    setattr(owner, name, function)


# in the middle of a step, of writing a file, and of giving it its name
PLACES = [(torch.optim.SGD, "step", 20), (os, "fsync", 25), (os, "replace", 10)]
codes = {"whole": forked("whole"), "kills": []}
for turn in range(6):
    owner, name, most = PLACES[turn % len(PLACES)]
    codes["kills"].append(forked("killed", "--checkpoint", "killed", die=(owner, name, random.randint(1, most))))
codes["last"] = forked("killed", "--checkpoint", "killed")
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("crash")
    environment = os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    with child([sys.executable, "-c", KILLING], cwd=place, env=environment) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return place, json.loads(output.splitlines()[-1])


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_kills_came_in_the_middle(runs):
    _, codes = runs

    assert codes["kills"].count(-9) >= 5
    assert codes["whole"] == codes["last"] == 0


def test_every_file_is_that_of_the_run_that_was_not_killed(runs):
    place, _ = runs

    whole, killed = files(place / "whole"), files(place / "killed")

    assert whole.keys() == killed.keys()
    assert [name for name in whole if whole[name] != killed[name]] == []
    assert {"fp32.safetensors", "report.json", "metrics.jsonl", "int8/model.xml", "int8/model.onnx"} <= whole.keys()


def test_no_attempt_started_all_over_again(runs):
    place, _ = runs
    log = (place / "killed.log").read_text()

    assert log.count("starting from the beginning") == 1
    assert "Traceback" not in log
