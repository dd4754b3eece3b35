"""Weights of 4 bits: half the bytes where the engine unpacks them, and a word where it does not."""

import logging

import pytest
import torch
from torch import nn

import quaver


@pytest.fixture(scope="module")
def frozen():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 17, 3), nn.ReLU(), nn.Conv2d(17, 33, 3), nn.ReLU(), nn.Flatten(), nn.Linear(528, 9))
    programs = {}
    for bits in (4, 8):
        program = quaver.quant_aware(net, {"weight_bits": bits}, example_inputs=(torch.zeros(1, 3, 8, 8),))
        program.train()(torch.randn(8, 3, 8, 8))
        programs[bits] = quaver.convert(program.eval())
    return programs


@pytest.mark.slow
def test_weights_of_four_bits_take_half_the_bytes_and_compute_the_same_integers(frozen, tmp_path, caplog):
    pytest.importorskip("openvino")
    files = {bits: quaver.export(program, tmp_path / str(bits)) for bits, program in frozen.items()}
    sizes = {bits: file.with_suffix(".bin").stat().st_size for bits, file in files.items()}
    numbers = 3 * 17 * 9 + 17 * 33 * 9 + 528 * 9

    result = quaver.verify(frozen[4], files[4], [torch.randn(8, 3, 8, 8)])

    assert sizes[8] - sizes[4] == numbers // 2 - 1  # two of the three have an odd number of weights
    assert result.integers_equal == 1
    assert result.passed
    assert "8-bit weights" not in caplog.text


def test_a_file_that_is_no_smaller_is_said_to_be_so(frozen, tmp_path, caplog):
    pytest.importorskip("onnxruntime")
    quaver.export(frozen[8], tmp_path, target="onnx")
    assert "8-bit weights" not in caplog.text

    with caplog.at_level(logging.WARNING, "quaver"):
        quaver.export(frozen[4], tmp_path, target="onnx")

    assert "3 of 3 weights need 4 bits or fewer" in caplog.text
    assert "no smaller than with 8-bit weights" in caplog.text
