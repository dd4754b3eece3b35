"""A machine that runs artefacts has numpy and an engine: nothing else of what Quaver can use is imported there."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import quaver

DEPLOYED = """
import sys

class OnlyAnEngine:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ("torch", "onnx", "onnxscript", "safetensors", "PIL", "yaml", "rich", "typer", "jinja2"):
            raise ModuleNotFoundError(f"{name} is not installed on this machine", name=top)

sys.meta_path.insert(0, OnlyAnEngine())

import numpy as np
import quaver

run = quaver.runtime.load(sys.argv[1])
np.save(sys.argv[3], run(np.load(sys.argv[2])))
try:
    quaver.QAT
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 4))
    qat = quaver.quant_aware(net, example_inputs=(torch.zeros(2, 3, 8, 8),)).train()
    qat(torch.randn(4, 3, 8, 8))
    return quaver.convert(qat)


@pytest.mark.parametrize(("target", "package"), [("openvino", "openvino"), ("onnx", "onnxruntime")])
def test_an_artefact_runs_where_there_are_only_numpy_and_its_engine(program, target, package, tmp_path):
    pytest.importorskip(package)
    file = quaver.export(program, tmp_path, target=target)
    images = np.random.default_rng(0).standard_normal((3, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "images.npy", images)

    command = [sys.executable, "-c", DEPLOYED, file, tmp_path / "images.npy", tmp_path / "answer.npy"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("quaver.QAT needs torch, which is not installed. Install Quaver in full")
    assert np.array_equal(np.load(tmp_path / "answer.npy"), quaver.runtime.load(file)(images))
