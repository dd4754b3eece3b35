"""Without openvino, as on a machine that only trains."""

import json
import sys

import pytest
import torch
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from quaver.errors import EngineError
from tiny import net


@pytest.fixture(autouse=True)
def without_openvino(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    for name in ("runner", "writer", "inspection"):  # what read it before is read anew
        monkeypatch.delitem(sys.modules, f"quaver.engines.openvino.{name}", raising=False)


def test_the_way_to_install_it_is_said(tmp_path):
    program = quaver.quant_aware(net(10), example_inputs=(torch.zeros(2, 3, 8, 8),))
    program.train()(torch.randn(4, 3, 8, 8))

    with pytest.raises(EngineError, match=r"openvino is not installed.*pip install openvino"):
        quaver.export(quaver.convert(program), tmp_path)

    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_leaves_its_file_out_and_says_so(tmp_path):
    model, short = ["--model", "tiny:net", "--image_shape", "3,8,8"], ["--float_epochs", "0", "--num_epochs", "1"]
    done = CliRunner().invoke(app, ["quantize", *model, *short, "--batch_size", "128", "--model_save_dir", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert "openvino is not installed: int8/model.xml is left out" in done.output.replace("\n", " ")
    assert {file.name for file in (tmp_path / "int8").glob("model.*")} == {"model.onnx", "model.onnx.json", "model.onnx.py"}
    assert json.loads((tmp_path / "report.json").read_text())["engine"] == "onnxruntime"
