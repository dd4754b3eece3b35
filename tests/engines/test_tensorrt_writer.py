"""A program in TensorRT's form, and what ONNX Runtime makes of it when it executes it as it is written."""

import importlib
import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

import quaver
from onnx_models import node
from quaver import deployment
from quaver.engines import ENGINES
from quaver.engines.tensorrt import rules
from quaver.engines.tensorrt.rules import broken_rules
from quaver.errors import EngineError
from quaver.export import form_for
from quaver.onnx.editing import array_of, made_by
from quaver.onnx.model import model_of
from quaver.program.quantized_tensors import quantized_tensors

pytestmark = pytest.mark.slow

conftest = importlib.import_module("conftest")


def noise(count=16, size=16):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(7))


def frozen(net, target="tensorrt", **config):
    qat = quaver.quant_aware(net, {"target": target, **config}, example_inputs=(noise(2),)).train()
    for start in range(3):
        qat(noise(8 + start))
    return quaver.convert(qat)


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    return frozen(conftest.Patterns())


@pytest.fixture(scope="module")
def file(program, tmp_path_factory):
    return quaver.export(program, tmp_path_factory.mktemp("tensorrt"), target="tensorrt")


def roundings(file):
    return [node for node in ir.load(file).graph if node.op_type == "QuantizeLinear"]


def test_every_grid_is_signed_with_zero_at_zero_and_127_steps(program, file):
    assert {(tensor.low, tensor.high) for tensor in quantized_tensors(program)} == {(-128, 127)}
    zeros = [array_of(node.inputs[2]) for node in roundings(file)]
    assert {(zero.dtype.name, int(zero)) for zero in zeros} == {("int8", 0)}


def test_what_a_layer_adds_to_a_shortcut_is_not_rounded_and_the_shortcut_is(file):
    (sums,) = [node for node in ir.load(file).graph if node.op_type == "Add"]

    assert [value.producer().op_type for value in sums.inputs] == ["Conv", "DequantizeLinear"]


def test_activations_stand_right_behind_their_layer_and_biases_are_float(file):
    model = ir.load(file)

    assert made_by(node(model, "Relu").inputs[0], "Conv") is not None
    assert {array_of(layer.inputs[2]).dtype.name for layer in model.graph if layer.op_type == "Conv"} == {"float32"}


def test_weights_are_int8_with_a_scale_per_output_channel(file):
    weight = made_by(node(ir.load(file), "Conv").inputs[1], "DequantizeLinear")

    assert array_of(weight.inputs[0]).dtype == np.int8
    assert (weight.attributes["axis"].as_int(), array_of(weight.inputs[1]).shape) == (0, (16,))


def test_the_file_keeps_every_rule_and_says_that_its_batch_is_free(file):
    assert [broken.rule for broken in broken_rules(file)] == ["sizes to build for"]
    assert {entry.domain: entry.version for entry in onnx.load(file).opset_import}[""] in rules.OPSETS


def test_the_record_beside_the_file_says_which_engine_it_is_for(file):
    assert json.loads(file.with_name("model.onnx.json").read_text())["target"] == "tensorrt"
    assert quaver.runtime.load(file).session.get_session_options().graph_optimization_level.name == "ORT_DISABLE_ALL"


def test_verify_compares_every_quantized_tensor(program, file):
    result = quaver.verify(program, file, [noise()])

    assert result.passed, str(result)
    assert len(result.layers) == len(quantized_tensors(form_for(program, ENGINES["tensorrt"])))
    assert "TensorRT itself was not asked" in result.note
    assert sum(layer.differ for layer in result.layers) <= 1e-3 * sum(layer.size for layer in result.layers)


def test_a_scale_that_is_wrong_in_the_file_is_found(program, file, tmp_path):
    model = onnx.load(file)
    scale = next(each.input[1] for each in model.graph.node if each.op_type == "QuantizeLinear")
    wrong = next(value for value in model.graph.initializer if value.name == scale)
    wrong.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(wrong) * np.float32(1.01), wrong.name))
    onnx.save(model, tmp_path / "model.onnx")
    record = json.loads(file.with_name("model.onnx.json").read_text())
    other = importlib.import_module("deployed").signed({key: record[key] for key in ("target",)} | {"files": {}})
    (tmp_path / "model.onnx.json").write_text(json.dumps(other))

    assert not quaver.verify(program, tmp_path, [noise()]).passed


def test_the_simulation_is_what_onnx_defines():
    """ONNX's reference rounds and multiplies in numpy, an independent reading of the same few sentences."""
    torch.manual_seed(0)
    program = frozen(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)))
    reference = ReferenceEvaluator(ir.to_proto(model_of(form_for(program, ENGINES["tensorrt"]))))
    x = noise(4)
    (expected,) = reference.run(None, {"input": x.numpy()})

    assert np.abs(program(x).detach().numpy() - expected).max() < 1e-5 * np.abs(expected).max()


def test_convolutions_along_a_line_are_quantized_as_others_are(tmp_path):
    torch.manual_seed(0)
    line = [nn.Flatten(2), nn.Conv1d(3, 8, 9, 2, 4), nn.ReLU(), nn.Conv1d(8, 8, 3, 1, 2, 2, groups=8), nn.Conv1d(8, 4, 1)]
    program = frozen(nn.Sequential(*line))

    assert not [op for op in program.ops() if op.type == "conv1d" and not op.quantized]
    assert quaver.verify(program, quaver.export(program, tmp_path, target="tensorrt"), [noise()]).passed


def test_what_was_made_for_255_steps_gets_127_larger_ones(tmp_path):
    torch.manual_seed(0)
    made = frozen(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)), target="openvino")
    before = {tensor.name: tensor for tensor in quantized_tensors(made)}
    after = {tensor.name: tensor for tensor in quantized_tensors(form_for(made, ENGINES["tensorrt"]))}

    assert (before["1"].high, after["1"].low, after["1"].high) == (255, -128, 127)
    assert after["1"].step * 127 == pytest.approx(before["1"].step * 255, rel=1e-4)
    assert after["input"].step == before["input"].step
    file = quaver.export(made, tmp_path, target="tensorrt")
    assert quaver.verify(made, file, [noise()]).passed


def test_a_mobile_program_is_written_too(tmp_path):
    torch.manual_seed(0)
    mobile = importlib.import_module("mobiles").mobile_program(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))

    file = quaver.export(mobile, tmp_path, target="tensorrt")

    assert {int(array_of(node.inputs[2])) for node in roundings(file)} == {0}


def test_grids_of_few_bits_stay_as_they_are(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    program = frozen(net, activation_bits=4, target="openvino")

    assert {(t.low, t.high) for t in quantized_tensors(form_for(program, ENGINES["tensorrt"]))} == {(-8, 7), (0, 15)}
    file = quaver.export(program, tmp_path, target="tensorrt")
    assert quaver.verify(program, file, [noise()]).passed


def test_a_transposed_convolution_has_its_scales_along_axis_1(tmp_path):
    torch.manual_seed(0)
    program = frozen(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 6, 2, stride=2)))

    file = quaver.export(program, tmp_path, target="tensorrt")

    weight = made_by(node(ir.load(file), "ConvTranspose").inputs[1], "DequantizeLinear")
    assert (weight.attributes["axis"].as_int(), array_of(weight.inputs[1]).shape) == (1, (6,))


def test_a_float_program_is_written_as_it_is(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    file = quaver.export(quaver.capture(net, (noise(2),)), tmp_path, target="tensorrt")

    assert np.allclose(quaver.runtime.load(file)(noise().numpy()), net(noise()).detach().numpy(), atol=1e-5)


def test_a_file_that_breaks_a_rule_is_not_written_and_the_rule_is_named(program, tmp_path, monkeypatch):
    def nothing_is_right(model):
        yield node(model, "Conv"), "it is not right"

    monkeypatch.setattr(rules, "REFUSED", (nothing_is_right,))
    with pytest.raises(EngineError, match=r"TensorRT does not take the file: 'Conv:.*': it is not right"):
        quaver.export(program, tmp_path, target="tensorrt")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("target", "folders"), [("openvino", {"int8"}), ("tensorrt", {"int8", "tensorrt"})])
def test_a_tree_holds_the_file_of_a_program_that_was_made_for_it(target, folders, tmp_path, monkeypatch):
    written = {}
    monkeypatch.setattr(deployment, "export_each", lambda _, files, image: written.update(files) or list(files.values()))
    program = frozen(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), target=target)

    deployment.write_tree(program, tmp_path)

    assert {file.parent.name for file in written.values()} == folders | {"mobile"}
