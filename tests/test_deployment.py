"""``fp32/``: the float model beside int8, for the engines that run it. LiteRT's is skipped where that is not installed."""

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from needs import need_litert
from quaver.deployment import write_float_model
from quaver.engines import ENGINES
from quaver.errors import EngineError

pytestmark = pytest.mark.slow


@pytest.fixture
def program():
    torch.manual_seed(0)
    return quaver.capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), (torch.zeros(2, 3, 8, 8),)).eval()


def test_what_int8_was_made_for_gets_its_float_model(program, tmp_path):
    need_litert()
    images = torch.randn(5, 3, 8, 8)

    written = write_float_model(program, tmp_path, ENGINES["litert"])

    assert tmp_path / "fp32" / "model.tflite" in written
    with torch.no_grad():
        expected = program(images).numpy()
    np.testing.assert_allclose(quaver.runtime.load(tmp_path / "fp32" / "model.tflite")(images.numpy()), expected, atol=1e-5)


def test_nothing_more_is_written_for_an_engine_that_reads_what_is_there(program, tmp_path):
    plain = write_float_model(program, tmp_path / "plain")

    assert [file.name for file in write_float_model(program, tmp_path, ENGINES["tensorrt"])] == [file.name for file in plain]
    assert not [file for file in plain if file.suffix in (".tflite", ".pte")]


def test_a_float_model_that_the_engine_has_no_words_for_is_left_out_with_the_reason(program, tmp_path, monkeypatch):
    def write(*arguments):
        raise EngineError("LiteRT: 'cummax': there is no form of it.")

    monkeypatch.setattr(type(ENGINES["litert"]), "can_write", True)
    monkeypatch.setattr(type(ENGINES["litert"]), "write", write)
    reasons = []

    written = write_float_model(program, tmp_path, ENGINES["litert"], left_out=reasons.append)

    assert reasons == [f"{tmp_path / 'fp32' / 'model.tflite'} is left out: LiteRT: 'cummax': there is no form of it."]
    assert tmp_path / "fp32" / "model.onnx" in written
    assert (tmp_path / "fp32" / "README.txt").exists()
