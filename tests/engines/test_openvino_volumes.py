"""Convolutions over volumes, of video and scans, on OpenVINO: in int8, with the simulation's bits."""

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from quaver.measure.executed_layers import layers

pytestmark = pytest.mark.slow


def test_layers_over_volumes_run_in_int8_and_give_the_programs_bits(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv3d(3, 8, 3, padding=1, bias=False), nn.BatchNorm3d(8), nn.ReLU()),
        *(nn.Conv3d(8, 8, 3, stride=2), nn.ReLU(), nn.Conv3d(8, 16, 1), nn.ReLU()),
    )
    volumes = torch.randn(2, 3, 5, 6, 6)
    program = quaver.quant_aware(net, example_inputs=(volumes,)).train()
    program(volumes).square().mean().backward()

    frozen, int8 = quaver.convert(program.eval(), save_int8=True)
    file = quaver.export(frozen, tmp_path)

    assert torch.equal(program(volumes), frozen(volumes))
    assert torch.equal(frozen(volumes), int8(volumes))
    products = [layer.precision for layer in layers(file, "openvino", rounds=1) if layer.role == "product"]
    assert len(products) == 3
    assert set(products) <= {"u8", "i8"}
    np.testing.assert_array_equal(quaver.runtime.load(file)(volumes.numpy()), frozen(volumes).numpy())
