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


def deployed(file, images, folder):
    """What a machine with an engine alone says, and the answer that it gives."""
    np.save(folder / "images.npy", images)
    command = [sys.executable, "-c", DEPLOYED, file, folder / "images.npy", folder / "answer.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, np.load(folder / "answer.npy")


@pytest.mark.slow
@pytest.mark.parametrize(("target", "package"), [("openvino", "openvino"), ("onnx", "onnxruntime")])
def test_an_artefact_runs_where_there_are_only_numpy_and_its_engine(program, target, package, tmp_path):
    pytest.importorskip(package)
    file = quaver.export(program, tmp_path, target=target)
    images = np.random.default_rng(0).standard_normal((3, 3, 8, 8)).astype(np.float32)

    said, answer = deployed(file, images, tmp_path)

    assert said.startswith("quaver.QAT needs torch, which is not installed. Install Quaver in full")
    assert np.array_equal(answer, quaver.runtime.load(file)(images))


def test_so_does_one_that_takes_bytes(program, tmp_path):
    pytest.importorskip("onnxruntime")
    file = quaver.export(program, tmp_path, target="onnx", image=quaver.ImageInput((0.5,) * 3, (0.5,) * 3))
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)

    _, answer = deployed(file, images, tmp_path)

    assert np.array_equal(answer, quaver.runtime.load(file)(images))
