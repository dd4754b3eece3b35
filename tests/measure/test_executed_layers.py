import json
from collections import Counter
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import quaver
from deployed import CONVOLUTIONS, Net
from quaver.engines.onnxruntime import inspection as onnxruntime_inspection
from quaver.engines.openvino import inspection as openvino_inspection
from quaver.engines.openvino.inspection import _counted, _plain
from quaver.errors import EngineError
from quaver.measure.executed_layers import ProfiledLayer, layers, products_in_int8, titles, totals
from quaver.measure.int8_gaps import findings
from quaver.runtime.artefact import provenance

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

ENGINES = ("openvino", "onnxruntime")
SKIPPED = {"name": "middle", "quantized": False, "reason": "its scope 'middle' contains the skip pattern 'mid'"}
RECORDS = [{"name": name} for name in CONVOLUTIONS]


def by_title(executed, *types):
    return {title: layer for title, layer in zip(titles(executed).values(), executed, strict=True) if layer.type in types}


def products(executed):
    return by_title(executed, "Convolution", "FullyConnected", "Conv", "FusedConv", "QLinearConv")


def found(executed, engine, origin, kind):
    return {one.layer: one for one in findings(executed, engine, origin) if one.kind == kind}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_quantized_net_runs_in_int8_and_a_float_one_does_not(tmp_path, engine):
    int8 = layers(Net().save(tmp_path / "int8.onnx"), engine, rounds=1)
    in_float = layers(Net(quantized=False).save(tmp_path / "float.onnx"), engine, rounds=1)

    assert products_in_int8(int8) == (3, 3)
    assert products_in_int8(in_float) == (0, 3)
    assert {layer.precision for layer in products(in_float).values()} == {"f32"}


def test_a_layer_that_openvino_found_no_time_for_was_executed(tmp_path, monkeypatch):
    file = Net().save(tmp_path / "m.onnx")
    timed = layers(file, "openvino", rounds=1)
    monkeypatch.setattr(openvino_inspection, "_counted", lambda *given: _counted(*given).clear() or {})

    untimed = layers(file, "openvino", rounds=1)

    assert products_in_int8(untimed) == (3, 3)
    assert Counter(layer.type for layer in untimed) <= Counter(layer.type for layer in timed)
    assert not any(layer.microseconds for layer in untimed)


@pytest.mark.parametrize("engine", ENGINES)
def test_shares_are_of_the_whole_and_totals_are_of_the_layers(tmp_path, engine):
    executed = layers(Net().save(tmp_path / "m.onnx"), engine, batch=32, rounds=3)

    assert sum(layer.share for layer in executed) == pytest.approx(1)
    rows = totals(executed)
    assert sum(row["layers"] for row in rows) == len(executed)
    assert sum(row["microseconds"] for row in rows) == pytest.approx(sum(layer.microseconds for layer in executed))
    assert [row["microseconds"] for row in rows] == sorted((row["microseconds"] for row in rows), reverse=True)


class Counting:
    """A runner whose counters are, as OpenVINO's, averages over all calls so far; the first calls build kernels."""

    def __init__(self, *microseconds):
        self.rest, self.calls, self.sum, self.request = list(microseconds), 0, 0, self

    def __call__(self):
        self.sum += self.rest.pop(0)
        self.calls += 1

    def get_profiling_info(self):
        average = timedelta(microseconds=self.sum // self.calls)
        return [
            SimpleNamespace(node_name="conv", real_time=average, status="ran", EXECUTED="ran"),
            SimpleNamespace(node_name="relu", real_time=average, status="not ran", EXECUTED="ran"),
        ]


def test_building_kernels_in_the_first_calls_is_not_in_the_time():
    times = _counted(Counting(9000, 500, 10, 12, 14, 12), [], rounds=4)

    assert times == {"conv": pytest.approx(12, abs=2)}  # counters are whole microseconds


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_read_one_another_from_the_first_to_the_last(tmp_path, engine):
    executed = layers(Net().save(tmp_path / "m.onnx"), engine, rounds=1)

    names = {layer.name for layer in executed}
    assert all(set(layer.reads) <= names for layer in executed)
    assert [layer for layer in executed if not layer.reads] == executed[:1]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_float_layer_is_explained_with_the_programs_own_reason(tmp_path, engine):
    net = Net(in_float=["middle"]).save(tmp_path / "m.onnx", [RECORDS[0], SKIPPED, RECORDS[2]])

    one = found(layers(net, engine, rounds=1), engine, provenance(net), "float layer")["middle"]

    assert one.why == "conv2d 'middle' stays float in the program: its scope 'middle' contains the skip pattern 'mid'"
    assert one.remedy == "taking the pattern out of not_quant_pattern"


def test_a_float_layer_between_int8_layers_is_said_to_stand_there(tmp_path):
    net = Net(in_float=["middle"]).save(tmp_path / "m.onnx", [RECORDS[0], SKIPPED, RECORDS[2]])

    floats = found(layers(net, "openvino", rounds=1), "openvino", provenance(net), "float layer")

    assert floats["middle"].place == "between int8 layers"


@pytest.mark.parametrize(
    ("record", "why", "remedy"),
    [
        (
            {"type": "softmax", "quantized": False, "reason": "'softmax' is not among the op types to quantize"},
            "softmax 'softmax' stays float in the program: 'softmax' is not among the op types to quantize",
            "nothing, openvino is not known to run softmax in int8",
        ),
        (
            {"type": "pool2d", "quantized": False, "reason": "'pool2d' is not among the op types to quantize"},
            "pool2d 'softmax' stays float in the program: 'pool2d' is not among the op types to quantize",
            "adding 'pool2d' to quantize_op_types",
        ),
        (
            {"type": "softmax", "quantized": False, "reason": "computed with 'middle' in one step, before it is rounded"},
            "softmax ran by itself in f32, not together with 'middle'",
            "",
        ),
        (
            {"type": "softmax", "quantized": False, "reason": "nobody wanted it"},
            "softmax 'softmax' stays float in the program: nobody wanted it",
            "",
        ),
    ],
)
def test_what_would_remove_a_float_layer_depends_on_the_reason(tmp_path, record, why, remedy):
    net = Net(between="Softmax").save(tmp_path / "m.onnx", [*RECORDS, {"name": "softmax"} | record])

    one = found(layers(net, "openvino", rounds=1), "openvino", provenance(net), "float layer")["softmax"]

    assert (one.why, one.remedy) == (why, remedy)


def test_without_provenance_the_file_is_asked(tmp_path):
    net = Net(in_float=["middle"]).save(tmp_path / "m.onnx")

    one = found(layers(net, "openvino", rounds=1), "openvino", {}, "float layer")["middle"]

    assert one.why == "Convolution ran in f32: its weights stand in the file as f32, not as int8"


def test_a_convolution_whose_result_is_not_rounded_at_once_is_float_in_onnx_runtime_and_that_is_said(tmp_path):
    net = Net(between="Softmax").save(tmp_path / "m.onnx", RECORDS)

    executed = layers(net, "onnxruntime", rounds=1)

    assert products_in_int8(executed) == (2, 3)
    one = found(executed, "onnxruntime", provenance(net), "float layer")["middle"]
    assert "the program computes 'middle' on integers, but onnxruntime computed it in f32: Softmax reads its" in one.why
    rounding = found(executed, "onnxruntime", provenance(net), "rounding")
    assert rounding["middle.weight"].why.startswith("turns int8 weights back into float in every call for 'middle'")


@pytest.mark.parametrize("engine", ENGINES)
def test_quantizing_the_input_and_ordering_it_are_what_is_left_in_front_of_a_whole_int8_net(tmp_path, engine):
    net = Net().save(tmp_path / "m.onnx", RECORDS)
    executed = layers(net, engine, batch=256, rounds=1)  # less is ordered in no time that OpenVINO could count

    rounding = found(executed, engine, provenance(net), "rounding")["x"]
    assert (rounding.why, rounding.place) == ("quantizes the model's input", "before the first int8 layer")
    assert found(executed, engine, provenance(net), "reorder")["x → first"].remedy.startswith("nothing in the model")
    floats = found(executed, engine, provenance(net), "float layer").values()
    assert all(one.place == "behind the last int8 layer" for one in floats)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_float_model_has_nothing_to_explain(tmp_path, engine):
    executed = layers(Net(quantized=False).save(tmp_path / "m.onnx"), engine, rounds=1)

    assert findings(executed, engine, {}) == []


def test_the_longest_is_told_first(tmp_path):
    net = Net(in_float=["middle"], between="Softmax").save(tmp_path / "m.onnx")

    times = [one.microseconds for one in findings(layers(net, "openvino", batch=16, rounds=3), "openvino", {})]

    assert times == sorted(times, reverse=True)


def test_an_engine_that_tells_nothing_is_named(tmp_path):
    with pytest.raises(EngineError, match="executorch does not tell what it executes"):
        layers(tmp_path / "m.pte", "executorch")


def layer(name, *reads, kind="Convolution", role="product", precision="u8", writes="u8", **more):
    return ProfiledLayer(name, kind, role, precision, writes, 1.0, reads, (), share=0.1, **more)


def test_a_reorder_behind_a_float_layer_goes_with_it():
    # Hand-made: some processors' float convolutions write integers themselves, and there is no reorder to be found.
    executed = [
        layer("first", writes="f32"),
        layer("middle", "first", precision="f32", writes="f32"),
        layer("stored", "middle", kind="Reorder", role="reorder", precision="f32"),
        layer("last", "stored"),
    ]

    reorder = found(executed, "openvino", {}, "reorder")["middle → last"]

    assert (reorder.why, reorder.remedy) == ("turns f32 into u8", "running 'middle' in int8")


@pytest.mark.parametrize(
    ("origin", "remedy"),
    [
        ({"target": "openvino", "moved": {}}, "preparing the program for onnxruntime, with target='onnx'"),
        ({"target": "onnx", "moved": {"made_for": "openvino"}}, "preparing the program for onnxruntime, with target='onnx'"),
        ({"target": "onnx", "moved": {}}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_an_addition_that_a_program_for_openvino_left_unrounded_is_mended_by_preparing_for_the_engine(
    tmp_path, origin, remedy
):
    net = Net(between="Softmax").save(tmp_path / "m.onnx", RECORDS)
    executed = layers(net, "onnxruntime", rounds=1)
    (middle,) = (one for one in executed if one.ops == ("middle",))
    middle.given.readers[0].readers[0].type = "Add"  # as if the ReLU's result were added to, not softmaxed

    one = found(executed, "onnxruntime", provenance(net) | origin, "float layer")["middle"]

    assert one.remedy == remedy


def test_a_bias_or_activation_that_runs_apart_is_not_taken_for_the_convolution(tmp_path):
    executed = [
        layer("conv", ops=("a",)),
        layer("rest", "conv", kind="Eltwise", role="other", precision="f32", ops=("a",)),
        layer("next", "rest", ops=("b",)),
    ]
    origin = {"ops": [{"name": "a", "type": "conv2d", "quantized": True, "reason": ""}]}

    (one,) = findings(executed, "openvino", origin)

    assert (one.why, one.place) == ("finishes 'a' (bias, activation) in f32, as a layer of its own", "between int8 layers")


class Islands(nn.Module):
    """Two int8 convolutions around one that is skipped, then a softmax between int8 layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.skip_quant = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.skip_quant(F.relu(self.first(x))))
        x = torch.softmax(self.last(x), 1)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


@pytest.mark.slow
def test_layers_of_an_exported_program_have_its_names_and_its_reasons(tmp_path):
    torch.manual_seed(0)
    qat = quaver.quant_aware(Islands(), example_inputs=(torch.randn(2, 3, 8, 8),)).train()
    qat(torch.randn(4, 3, 8, 8))
    file = quaver.export(quaver.convert(qat), tmp_path / "model.xml")

    executed = layers(file, "openvino", rounds=1)

    kinds = {title: (one.type, one.is_int8) for title, one in products(executed).items()}
    assert kinds == {
        "first": ("Convolution", True),
        "skip_quant": ("Convolution", False),
        "last": ("Convolution", True),
        "fc": ("FullyConnected", True),
    }
    floats = found(executed, "openvino", json.loads(file.with_name("model.xml.json").read_text()), "float layer")
    assert set(floats) == {"skip_quant", "softmax"}
    assert "contains the skip pattern 'skip_quant'" in floats["skip_quant"].why
    assert "'softmax' is not among the op types to quantize" in floats["softmax"].why


@pytest.mark.parametrize(
    ("name", "in_the_file"),
    [("conv/WithoutBiases/fq", "conv"), ("add/duplicated/duplicated", "add"), ("own_nchwc", "own_nchwc")],
)
def test_what_openvino_puts_behind_a_name_is_not_part_of_it(name, in_the_file):
    assert _plain(name) == in_the_file


@pytest.mark.parametrize(("name", "in_the_file"), [("conv_token_3_nchwc", "conv"), ("own/duplicated", "own/duplicated")])
def test_what_onnx_runtime_puts_behind_a_name_is_not_part_of_it(name, in_the_file):
    call = {"args": {"op_name": "Conv", "input_type_shape": [], "output_type_shape": []}, "dur": 1}

    layer = onnxruntime_inspection._layer(name, [call] * 3, {}, {})

    assert (layer.name, layer.file_name, layer.origins) == (name, in_the_file, (in_the_file,))
