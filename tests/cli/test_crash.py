"""``quaver quantize`` killed with kill -9 at random moments and gone on with leaves the very files of a run that was not."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

import quaver
from children import child
from limits import AN_HOUR

pytestmark = pytest.mark.slow

TESTS, SOURCE = Path(__file__).parent.parent, Path(quaver.__file__).parent.parent

KILLING = """
import json, os, random, signal
from pathlib import Path
import torch
torch.set_num_threads(1)
from forks import forked
from quaver.engines.openvino.runner import OpenVINORunner

random.seed(5)
FLAGS = ["--model", "tiny:net", "--image_shape", "3,8,8", "--float_epochs", "1", "--num_epochs", "2", "--batch_size", "64",
         "--checkpoint_period", "4", "--ema", "0.9", "--lr", "0.05", "--verify_images", "40"]


def quantize(out, *more, at=None):
    return forked(out, ["quantize", *FLAGS, "--model_save_dir", out, *more], at)


# in the middle of a step, of writing a file, and of giving it its name
PLACES = [(torch.optim.SGD, "step", 20), (os, "fsync", 25), (os, "replace", 10)]
codes = {"whole": quantize("whole"), "kills": []}
for turn in range(6):
    owner, name, most = PLACES[turn % len(PLACES)]
    place = (signal.SIGKILL, owner, name, random.randint(1, most))
    codes["kills"].append(quantize("killed", "--checkpoint", "killed", at=place))
codes["engine"] = quantize("killed", "--checkpoint", "killed", at=(signal.SIGILL, OpenVINORunner, "infer", 1))
codes["there"] = sorted(str(path) for path in Path("killed").rglob("*.json"))
codes["last"] = quantize("killed", "--checkpoint", "killed")
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("crash")
    environment = os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    with child([sys.executable, "-c", KILLING], cwd=place, env=environment) as process:
        output, errors = process.communicate(timeout=AN_HOUR)
    assert process.returncode == 0, errors
    return place, json.loads(output.splitlines()[-1])


def files(folder):
    """All but the log, which has the times."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "train.log"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_kills_came_in_the_middle(runs):
    _, codes = runs

    assert codes["kills"].count(-9) >= 5
    assert codes["whole"] == codes["last"] == 0


def test_when_an_engine_dies_with_the_process_all_that_was_trained_is_on_disk(runs):
    _, codes = runs

    assert codes["engine"] == -signal.SIGILL
    last_step = 2 * (1438 // 64)  # of two epochs of digits
    trained = {f"killed/checkpoints/quantize-{last_step:09d}.json", "killed/float/program.json", "killed/int8/program.json"}
    assert trained <= set(codes["there"])
    assert "killed/report.json" not in codes["there"]


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
