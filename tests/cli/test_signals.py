"""``quaver quantize`` stopped by a signal from outside says how to go on, and what it says gets the files of a whole run."""

import json
import os
import sys
from pathlib import Path

import pytest

import quaver
from children import child
from limits import AN_HOUR

pytestmark = pytest.mark.slow

TESTS, SOURCE = Path(__file__).parent.parent, Path(quaver.__file__).parent.parent

# A child halts itself at a place; its parent then sends the signal and lets it go on, so that it always comes in the middle.
STOPPING = """
import json, os, shlex, signal
import torch
torch.set_num_threads(1)
from forks import forked

FLAGS = ["--model", "tiny:net", "--image_shape", "3,8,8", "--float_epochs", "1", "--num_epochs", "2", "--batch_size", "128",
         "--checkpoint_period", "1000", "--log_period", "4", "--ema", "0.9", "--lr", "0.05", "--verify_images", "40"]


def told(out):
    words = [line for line in open(out + ".log").read().splitlines() if "Go on with: " in line][-1]
    command = shlex.split(words.partition("Go on with: ")[2])
    assert command[0] == "quaver"
    return words, command[1:]


STEPS = 11  # of an epoch
STOPS = [
    (signal.SIGINT, (torch.optim.SGD, "step", 3)),
    (signal.SIGTERM, (torch.optim.SGD, "step", STEPS - 3 + STEPS + 5)),
    (signal.SIGTERM, (torch.onnx, "export", 1)),
]
whole = forked("whole", ["quantize", *FLAGS, "--model_save_dir", "whole"])
stops, command = [], ["quantize", *FLAGS, "--model_save_dir", "stopped thrice"]
for number, place in STOPS:
    code = forked("stopped thrice", command, (signal.SIGSTOP, *place), number)
    words, command = told("stopped thrice")
    stops.append([code, words, max(name for name in os.listdir("stopped thrice/checkpoints") if name.endswith("json"))])
print(json.dumps([whole, stops, forked("stopped thrice", command)]))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("signals")
    environment = os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
    with child([sys.executable, "-c", STOPPING], cwd=place, env=environment) as process:
        output, errors = process.communicate(timeout=AN_HOUR)
    assert process.returncode == 0, errors
    return place, json.loads(output.splitlines()[-1])


def files(folder):
    """All but the log, which has the times, and the last checkpoint but one, which is where the run was stopped."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "train.log"]
    names = {str(path.relative_to(folder)): path for path in paths}
    last = max(name for name in names if name.startswith("checkpoints/") and name.endswith(".json")).removesuffix(".json")
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if not name.startswith("checkpoints/") or name.startswith(last)
    }


def test_the_exit_code_is_that_of_the_signal(runs):
    _, (_, stops, _) = runs

    assert [code for code, _, _ in stops] == [130, 143, 143]


def test_the_step_ends_and_is_saved_and_the_message_says_how_to_go_on(runs):
    _, (_, stops, _) = runs
    how = "Go on with: quaver quantize --checkpoint 'stopped thrice' --model tiny:net"

    assert [(words, checkpoint) for _, words, checkpoint in stops] == [
        (f"stopped at epoch 0, batch 3, and saved. {how}", "float-000000003.json"),
        (f"stopped at epoch 1, batch 5, and saved. {how}", "quantize-000000016.json"),
        (f"stopped. {how}", "quantize-000000022.json"),
    ]


def test_the_command_it_printed_finishes_to_the_files_of_a_run_that_was_not_stopped(runs):
    place, (first, _, last) = runs
    whole, stopped = files(place / "whole"), files(place / "stopped thrice")

    assert first == last == 0
    assert whole.keys() == stopped.keys()
    assert [file for file in whole if whole[file] != stopped[file]] == []
    assert {"fp32.safetensors", "report.json", "metrics.jsonl", "int8/model.xml", "int8/model.onnx"} <= whole.keys()
    assert "Traceback" not in (place / "stopped thrice.log").read_text()
