"""A program exported for another engine than it was made for: the cost is measured, written down and said."""

import json
import logging
import sys

import pytest
import torch

import quaver
from quaver.export.other_engine import FAR
from quaver.runtime.artefact import provenance_file

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made_for_openvino():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(8, 8, 3, padding=1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.Hardswish(), conv, torch.nn.Flatten(), torch.nn.Linear(288, 5)
    )
    x = torch.randn(4, 3, 8, 8)
    program = quaver.quant_aware(net, example_inputs=(x,))
    program.train()(x)
    return quaver.convert(program.eval())


def moved(file):
    return json.loads(provenance_file(file).read_text())["moved"]


def test_nothing_is_said_of_a_program_at_home(made_for_openvino, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "quaver"):
        assert moved(quaver.export(made_for_openvino, tmp_path)) == {}

    assert not [record for record in caplog.records if record.name == "quaver"]


def test_the_distance_from_where_it_was_made_for_is_written_and_said(made_for_openvino, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "quaver"):
        found = moved(quaver.export(made_for_openvino, tmp_path, target="onnx"))

    assert found["made_for"] == "openvino"
    assert found["signal_to_noise_db"] > FAR
    (said,) = [record for record in caplog.records if record.name == "quaver"]
    assert said.levelno == logging.INFO
    assert f"{found['signal_to_noise_db']:.1f} dB from that" in said.getMessage()


def test_a_program_that_is_far_from_itself_there_is_warned_of(made_for_openvino, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(sys.modules["quaver.export.other_engine"], "FAR", 1e9)

    quaver.export(made_for_openvino, tmp_path, target="onnx")

    (said,) = [record for record in caplog.records if record.name == "quaver"]
    assert said.levelno == logging.WARNING
