"""An engine is a folder: this one, announced as another package would announce it, goes the whole way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

JOURNEY = """
import json, sys, torch, quaver
from torch import nn
from typer.testing import CliRunner
from quaver.cli.main import app

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5))
qat = quaver.quant_aware(net, {"target": "toy"}, example_inputs=(torch.zeros(2, 3, 8, 8),)).train()
qat(torch.randn(8, 3, 8, 8))
frozen = quaver.convert(qat)
file = quaver.export(frozen, "out", target="toy")
images = torch.randn(6, 3, 8, 8)
run = quaver.runtime.load("out")
difference = abs(run(images.numpy()) - frozen(images).numpy()).max()
result = quaver.verify(frozen, file, [(images, frozen(images).argmax(1))])
bench = CliRunner().invoke(app, ["bench", "out", "--rounds", "2", "--no-memory", "--layers", "--json", "bench.json"])
assert bench.exit_code == 0, bench.output
print(json.dumps({"file": file.name, "engine": type(run).__name__, "passed": result.passed, "difference": float(difference),
                  "benched": json.load(open("bench.json"))["latencies"][0]["model"], "deployed": result.accuracy_deployed}))
"""


@pytest.fixture
def announced(tmp_path):
    """The environment of a process in which the toy is installed."""
    facts = tmp_path / "site" / "toy-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[quaver.engines]\ntoy = toy:ENGINE\n")
    paths = [facts.parent, Path(__file__).parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def test_a_new_engine_is_its_folder_and_nothing_else(announced, tmp_path):
    done = subprocess.run([sys.executable, "-c", JOURNEY], cwd=tmp_path, env=announced, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["difference"] < 1e-4
    assert found | {"difference": 0} == {
        "file": "model.toy",
        "engine": "ToyRunner",
        "passed": True,
        "difference": 0,
        "benched": "out/model.toy",
        "deployed": 1.0,
    }


def test_an_engine_that_cannot_be_imported_is_said_and_left_out(announced, tmp_path):
    (tmp_path / "site" / "toy-1.0.dist-info" / "entry_points.txt").write_text("[quaver.engines]\nlost = nowhere:ENGINE\n")
    code = "import quaver; from quaver.engines import ENGINES; print(sorted(ENGINES))"

    done = subprocess.run([sys.executable, "-c", code], env=announced, capture_output=True, text=True)

    assert done.stdout.strip() == "['executorch', 'litert', 'litert_reference', 'onnx', 'openvino', 'tensorrt']"
    assert "the engine 'lost' cannot be imported" in done.stderr
