"""Folders whose names are not UTF-8, as old disks and archives have them: everything works there as elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import quaver
from quaver.errors import StorageError
from quaver.models import load_weights
from quaver.training.listener import TensorBoard

pytestmark = pytest.mark.slow

SOURCE = Path(quaver.__file__).parent.parent


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        path.mkdir()
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    return path


@pytest.fixture
def prepared():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 10))
    images = torch.randn(4, 3, 4, 4)
    program = quaver.quant_aware(net, example_inputs=(images,)).train()
    program(images)
    return program.eval()


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_a_program_is_saved_loaded_exported_and_run(folder, prepared, target):
    quaver.save(quaver.convert(prepared), folder / "program")
    images = torch.randn(2, 3, 4, 4)

    frozen = quaver.load(folder / "program")
    file = quaver.export(frozen, folder / "artefact", target=target)

    assert np.allclose(quaver.runtime.load(file)(images.numpy()), frozen(images).detach().numpy(), atol=1e-4)


def test_weights_are_loaded(folder, tmp_path):
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    save_file(one.state_dict(), tmp_path / "weights.safetensors")
    (tmp_path / "weights.safetensors").rename(folder / "weights.safetensors")

    load_weights(other, folder / "weights.safetensors")

    assert torch.equal(one.weight, other.weight)


def test_a_report_is_written_and_said_even_where_output_is_strict(folder, prepared):
    quaver.analyze(prepared, [torch.randn(2, 3, 4, 4)]).save(folder / "analysis.json")
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "utf-8:strict"}

    command = [sys.executable, "-m", "quaver", "report", folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "caf\\udce9/report.html: written." in done.stdout
    assert "caf\\udce9" in (folder / "report.html").read_text()


def test_tensorboard_which_knows_utf_8_only_refuses_with_words(folder):
    pytest.importorskip("tensorboard")

    with pytest.raises(StorageError, match="TensorBoard cannot write there"):
        TensorBoard(folder / "events")
