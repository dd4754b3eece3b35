"""What export writes: int8 weights, a free batch, where it comes from; and what it leaves behind when it fails: nothing."""

import json
import os
import resource
import sys

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import quaver
from quaver.errors import ConfigError, EngineError, StageError, StorageError
from quaver.export import export_each

pytestmark = pytest.mark.slow

SUFFIX = {"openvino": ".xml", "onnx": ".onnx"}


@pytest.fixture
def frozen(patterns, images, train):
    return quaver.convert(train(quaver.quant_aware(patterns, example_inputs=(images,))))


def int8_initializers(file):
    return [value for value in onnx.load(file).graph.initializer if value.data_type == onnx.TensorProto.INT8 and value.dims]


class Named(nn.Module):
    """Gives a dict, as models of Hugging Face do: with what is not there today, and the name of an input among its keys."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        y = torch.relu(self.layer(x))
        return {"loss": None, "logits": y.mean((2, 3)), "hidden": (y,), "x": y.sum(), "labels": 3}


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_the_keys_of_a_dict_are_the_names_of_a_files_outputs_and_none_is_left_out(target, tmp_path):
    x = torch.randn(2, 3, 8, 8)
    qat = quaver.quant_aware(Named(), example_inputs=(x,)).train()
    qat(x)
    frozen = quaver.convert(qat)

    file = quaver.export(frozen, tmp_path, target=target)

    assert frozen.output_names == ["logits", "hidden.0", "output.x"]
    result = quaver.verify(frozen, file, [x.numpy()])
    assert result.passed
    assert [output.name for output in result.output_agreement] == frozen.output_names
    if target == "onnx":
        assert [output.name for output in onnx.load(file).graph.output] == frozen.output_names


def test_an_onnx_file_names_its_batch_and_who_made_it(frozen, tmp_path):
    model = onnx.load(quaver.export(frozen, tmp_path, target="onnx"))

    sizes = [value.type.tensor_type.shape.dim[0].dim_param for value in (*model.graph.input, *model.graph.output)]
    assert set(sizes) == {"batch"}
    assert (model.producer_name, model.producer_version) == ("quaver", quaver.__version__)


def test_every_weight_of_an_onnx_file_is_stored_as_int8(frozen, tmp_path):
    file = quaver.export(frozen, tmp_path, target="onnx")

    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    weights = [value for value in int8_initializers(file) if len(value.dims) > 1]
    assert sorted(tuple(value.dims) for value in weights) == sorted(
        tuple(weight.shape) for name, weight in frozen.named_parameters() if name.endswith(".weight") and weight.dim() > 1
    )
    floats = [value for value in model.graph.initializer if value.data_type == onnx.TensorProto.FLOAT]
    assert max(int(np.prod(value.dims)) for value in floats) <= 16  # steps and biases, one for each channel


def test_the_batch_of_an_onnx_file_is_free(frozen, tmp_path):
    model = onnx.load(quaver.export(frozen, tmp_path, target="onnx"))

    for port in (*model.graph.input, *model.graph.output):
        assert port.type.tensor_type.shape.dim[0].dim_param


@pytest.mark.parametrize("target", SUFFIX)
def test_an_artefact_says_where_it_comes_from(frozen, tmp_path, target):
    file = quaver.export(frozen, tmp_path, target=target)

    beside = json.loads((tmp_path / f"model{SUFFIX[target]}.json").read_text())
    assert beside["quaver"] == quaver.__version__
    assert beside["target"] == target
    assert {op["name"] for op in beside["ops"]} == {record.name for record in frozen.ops()}
    assert set(beside["files"]) == {path.name for path in tmp_path.iterdir()} - {f"{file.name}.json"}
    inside = file.read_text() if target == "openvino" else onnx.load(file).metadata_props[0].value
    assert beside["source"] in inside


@pytest.mark.parametrize("target", SUFFIX)
def test_a_module_whose_name_could_be_no_variable_is_exported(images, tmp_path, target):
    model = nn.Sequential()
    model.add_module('a "b"', nn.Conv2d(3, 4, 3))
    qat = quaver.quant_aware(model, example_inputs=(images,)).train()
    qat(images)
    frozen = quaver.convert(qat.eval())

    file = quaver.export(frozen, tmp_path, target=target)

    outputs = quaver.runtime.load(file)(images.numpy())
    assert np.allclose(outputs, frozen(images).detach().numpy(), atol=1e-4)


def test_a_folder_and_a_file_name_are_both_taken(frozen, tmp_path):
    assert quaver.export(frozen, tmp_path / "new" / "folder") == tmp_path / "new" / "folder" / "model.xml"
    assert quaver.export(frozen, tmp_path / "mine.onnx", target="onnx") == tmp_path / "mine.onnx"
    with pytest.raises(StorageError, match=r"mine.onnx: openvino reads .xml files"):
        quaver.export(frozen, tmp_path / "mine.onnx")


def test_a_program_that_still_trains_and_a_target_that_is_not_are_refused(patterns, images, tmp_path):
    qat = quaver.quant_aware(patterns, example_inputs=(images,))

    with pytest.raises(StageError, match="still trains"):
        quaver.export(qat, tmp_path)
    with pytest.raises(ConfigError, match="openvino"):
        quaver.export(qat, tmp_path, target="openvine")
    with pytest.raises(StageError, match="not Patterns"):
        quaver.export(patterns, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", SUFFIX)
def test_an_export_that_computes_something_else_is_refused_and_the_old_files_stay(frozen, tmp_path, target, monkeypatch):
    quaver.export(frozen, tmp_path, target=target)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(sys.modules["quaver.export"], "reopened", lambda file, engine: Wrong())

    with pytest.raises(EngineError, match="not what the program computes"):
        quaver.export(frozen, tmp_path, target=target)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_pool_that_onnx_has_no_form_for_is_named(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2, ceil_mode=True, divisor_override=3))

    with pytest.raises(EngineError, match=r"'1': a pool with divisor_override .* multiply the pool's result"):
        quaver.export(quaver.capture(net, (torch.zeros(2, 3, 9, 9),)), tmp_path, target="onnx")
    assert list(tmp_path.iterdir()) == []


def test_where_one_engine_refuses_nothing_is_written_for_the_others(frozen, tmp_path, monkeypatch):
    files = {"onnx": tmp_path / "model.onnx", "openvino": tmp_path / "model.xml"}
    opened = sys.modules["quaver.export"].reopened
    monkeypatch.setattr(
        sys.modules["quaver.export"],
        "reopened",
        lambda file, engine: Wrong() if file.suffix == ".xml" else opened(file, engine),
    )

    with pytest.raises(EngineError, match="not what the program computes"):
        export_each(frozen, files)
    assert list(tmp_path.iterdir()) == []


class Wrong:
    """An engine that gives the same whatever it is asked."""

    engine = "wrong"

    def __call__(self, *batch):
        return np.full((2, 10), -3.0, np.float32)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_named(frozen, tmp_path):
    tmp_path.chmod(0o500)

    with pytest.raises(StorageError, match="cannot be written"):
        quaver.export(frozen, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_program_in_another_float_type_is_refused_with_the_way_out(tmp_path, dtype):
    quanter = quaver.QAT()
    net = quanter.quantize(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()).to(dtype))
    net(torch.ones(2, 3, 4, 4, dtype=dtype))
    program = quanter.convert(net, [quaver.InputSpec([None, 3, 4, 4], dtype)])

    with pytest.raises(EngineError, match=rf"computes in {str(dtype)[6:]}, .* net.float\(\) first"):
        quaver.export(program, tmp_path, target="onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(frozen, tmp_path):
    (tmp_path / "taken").write_text("mine")

    with pytest.raises(StorageError, match="taken: could not be written"):
        quaver.export(frozen, tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize("target", SUFFIX)
def test_a_full_disk_is_a_storage_error_and_the_old_files_stay(frozen, tmp_path, target):
    quaver.export(frozen, tmp_path, target=target)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limit[1]))  # bytes: the weights do not fit
    try:
        with pytest.raises(StorageError, match=r"could not be written: .*What was there is untouched"):
            quaver.export(frozen, tmp_path, target=target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_draft_that_a_killed_export_left_goes_with_the_next(frozen, tmp_path):
    left = tmp_path / ".quaver-draft-0123abcd" / "0"
    left.mkdir(parents=True)
    (left / "model.onnx").write_text("half")

    quaver.export(frozen, tmp_path, target="onnx")

    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.onnx.json"}


def test_a_file_tells_openvino_itself_to_leave_the_float_inputs_of_int8_layers_alone(tmp_path):
    openvino = pytest.importorskip("openvino")
    x = torch.randn(4, 256)
    qat = quaver.quant_aware(nn.Sequential(nn.Linear(256, 64)), {"quant_weight_only": True}, example_inputs=(x,))

    file = quaver.export(quaver.convert(qat), tmp_path / "model.xml")

    opened = openvino.Core().compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert opened.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE") == 0  # processors differ in whether they would round them
    np.testing.assert_array_equal(opened(x.numpy())[0], quaver.runtime.load(file)(x.numpy()))
