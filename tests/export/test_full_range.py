"""Files with weights of full range: what is written about them, and what is said where they cannot run well."""

import json
import warnings

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import QuaverWarning
from quaver.runtime.artefact import provenance_file

pytestmark = pytest.mark.slow


def exported(folder, target="openvino", **config):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    with torch.no_grad():
        for layer in net[::2]:
            layer.weight.copy_(1 - 0.2 * torch.rand(layer.weight.shape))
    x = torch.rand(2, 8, 8, 8)
    program = quaver.quant_aware(net, {"target": target} | config, example_inputs=(x,))
    program.train()(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", QuaverWarning)  # on a processor that overflows, export says so
        return quaver.export(quaver.convert(program.eval()), folder, target=target)


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_the_file_says_which_layers_overflow_without_vnni(tmp_path, target):
    safe, full = (
        json.loads(provenance_file(exported(tmp_path / str(on), target, saturation_safe=on)).read_text())["full_range"]
        for on in (True, False)
    )

    assert safe == []
    assert full == ["0", "4"]  # a depthwise convolution never does


def test_loading_such_a_file_without_vnni_is_warned_of_in_one_line(tmp_path, monkeypatch):
    file = exported(tmp_path, saturation_safe=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")

    with pytest.warns(QuaverWarning, match=r"no VNNI and overflows.* 2 layers have them, '0' first") as said:
        quaver.runtime.load(file)

    assert len(said) == 1
    assert "\n" not in str(said[0].message)


def test_a_safe_file_is_not_warned_of(tmp_path, monkeypatch):
    file = exported(tmp_path)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        quaver.runtime.load(file)

    assert [str(one.message) for one in said] == []
