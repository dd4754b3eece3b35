"""What a live model is written as: files that compute what ``net.eval()`` computed, and clear words where there is none."""

import logging
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import quaver
from quaver.errors import CaptureError, ConversionError, InputError, StageError
from quaver.quantizers import PACT

pytestmark = pytest.mark.slow

SPEC = [quaver.InputSpec([None, 3, 16, 16], "float32", "image")]


def small():
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2)]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(144, 10))


def trained(net, quanter, steps=3):
    generator = torch.Generator().manual_seed(3)
    quanter.quantize(net).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(steps):
        loss = F.cross_entropy(
            net(torch.randn(8, 3, 16, 16, generator=generator)), torch.randint(0, 10, (8,), generator=generator)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


def surroundings(net):
    """Everything that writing a model could disturb: the model's state and modes, random numbers, settings, the folder."""
    return {
        "modes": [module.training for module in net.modules()],
        "types": [type(module) for module in net.modules()],
        "state": {key: value.tolist() for key, value in net.state_dict().items()},
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()],
        "random": (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()),
        "settings": (torch.is_grad_enabled(), torch.get_num_threads(), torch.get_default_dtype()),
        "logging": logging.root.manager.disable,
        "here": sorted(Path.cwd().iterdir()),
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    quanter = quaver.QAT()
    net = trained(small(), quanter)
    net.train()
    net[1].eval()
    folder = tmp_path_factory.mktemp("eager")
    before = surroundings(net)
    artefact = quanter.save_quantized_model(net, folder, input_spec=SPEC)
    after = surroundings(net)
    return quanter, net.eval(), folder, artefact, before, after


def test_the_process_and_the_model_are_left_as_they_were(written):
    *_, before, after = written

    for key in before:
        assert after[key] == before[key], key


def test_onnx_and_openvino_are_written_with_int8_weights(written):
    import onnx

    _, _, folder, artefact, *_ = written

    names = {file.name for file in folder.iterdir()}
    assert names == {"model.onnx", "model.onnx.json", "model.xml", "model.bin", "model.xml.json"}
    assert artefact == folder / "model.xml"
    model = onnx.load(folder / "model.onnx")
    weights = [tensor for tensor in model.graph.initializer if tensor.name.endswith("weight")]
    assert [onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in weights] == ["INT8"] * 3
    assert model.graph.input[0].name == "image"
    float_bytes = 4 * sum(parameter.numel() for parameter in small().parameters())
    assert artefact.with_suffix(".bin").stat().st_size < 0.35 * float_bytes


@pytest.mark.parametrize("file", ["model.xml", "model.onnx"])
def test_they_compute_what_the_live_model_computes_in_evaluation(written, file, images):
    _, net, folder, *_ = written

    got = quaver.runtime.load(folder / file)(images.numpy())

    with torch.no_grad():
        expected = net(images).numpy()
    tolerance = 0 if file == "model.xml" else 0.02 * np.abs(expected).max()  # ONNX Runtime rounds sums in its own order
    assert np.abs(got - expected).max() <= tolerance


def test_verify_holds(written, images):
    quanter, net, _, artefact, *_ = written

    result = quaver.verify(quanter.convert(net, SPEC), artefact, [images, 2 * images])

    assert (result.agreement, result.integers_equal, result.largest_difference) == (1.0, 1.0, 0.0)


def test_another_name_can_be_given(written, tmp_path, monkeypatch):
    quanter, net, *_ = written
    files = []
    monkeypatch.setattr("quaver.eager.qat.export_each", lambda program, paths: files.extend(paths.values()) or files)

    assert quanter.save_quantized_model(net, tmp_path / "small.onnx", SPEC) == tmp_path / "small.xml"
    assert files == [tmp_path / "small.xml", tmp_path / "small.onnx"]


def test_what_was_loaded_can_be_written_before_the_first_forward(tmp_path, images):
    quanter = quaver.QAT()
    net = trained(small(), quanter)
    again = quanter.quantize(small()).eval()
    again.load_state_dict(net.state_dict())

    frozen = quanter.convert(again, SPEC)

    assert torch.equal(frozen(images), net(images))
    assert torch.equal(again(images), net(images))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.bright, self.dark = nn.Conv2d(3, 10, 3), nn.Conv2d(3, 10, 3)

    def forward(self, x):
        if x.mean() > 0:
            return self.bright(x).mean((2, 3))
        return self.dark(x).mean((2, 3))


def test_a_model_with_a_branch_trains_and_export_names_the_branch():
    quanter = quaver.QAT()
    net = trained(Branch(), quanter, steps=8)
    thresholds = [layer.input_quantizer.threshold.item() for layer in (net.bright, net.dark)]

    assert min(thresholds) > 0
    with pytest.raises(CaptureError, match=r"Branch, .*test_export.py:\d+: 'if x.mean\(\) > 0:'.*a file needs one graph"):
        quanter.convert(net, SPEC)


def test_a_branch_by_shapes_or_attributes_is_written(images):
    class Choice(Branch):
        dim = False

        def forward(self, x):
            return (self.dark(x) if self.dim or x.shape[2] > 100 else self.bright(x)).mean((2, 3))

    quanter = quaver.QAT()
    net = trained(Choice(), quanter)

    assert torch.equal(quanter.convert(net, SPEC)(images), net(images))


@pytest.mark.parametrize(
    "how", [torch.compile, lambda net, backend: net.compile(backend=backend) or net], ids=["of", "in place"]
)
def test_a_compiled_model_is_written_as_the_plain_one_and_keeps_everything(how, images):
    quanter = quaver.QAT({"activation_quantize_type": "learned_step"})
    net = trained(small(), quanter)
    before, expected = surroundings(net), quanter.convert(net, SPEC)(images)

    frozen = quanter.convert(how(net, backend="eager"), SPEC)

    assert torch.equal(frozen(images), expected)
    for key, value in surroundings(net).items():
        assert value == before[key], key


def as_list(net):
    net.order = [net.first, net.last]
    net.forward = lambda x: net.order[1](F.relu(net.order[0](x)))


def as_method(net):
    net.run = net.through


def as_closure(net):
    first, last = net.first, net.last
    net.run = lambda x: last(F.relu(first(x)))


def as_patch(net):
    whole = net.forward
    net.forward = lambda x: 2 * whole(x)


class Aliased(nn.Module):
    """Layers that the forward reaches by other ways than by their names."""

    def __init__(self, alias):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.run = None
        alias(self)

    def through(self, x):
        return self.last(F.relu(self.first(x)))

    def forward(self, x):
        return (self.run or self.through)(x)


@pytest.mark.parametrize("alias", [as_list, as_method, as_closure, as_patch])
def test_layers_are_written_on_integers_however_the_forward_reaches_them(alias, images):
    net, quanter = Aliased(alias), quaver.QAT()
    quanter.quantize(net)(images)
    net.eval()
    before, attributes = surroundings(net), [dict(module.__dict__) for module in net.modules()]

    frozen = quanter.convert(net, SPEC)

    assert {op.name for op in frozen.ops() if op.quantized} == {"first", "last"}
    assert torch.equal(frozen(images), net(images))
    assert [module.__dict__ for module in net.modules()] == attributes
    for key, value in surroundings(net).items():
        assert value == before[key], key


def test_a_model_that_cannot_be_written_is_left_as_it_was():
    quanter = quaver.QAT()
    net = quanter.quantize(Branch())
    before = surroundings(net)

    with pytest.raises(CaptureError):
        quanter.convert(net, SPEC)

    for key, value in surroundings(net).items():
        assert value == before[key], key


def test_a_wrong_shape_is_looked_for_in_the_input_spec():
    quanter = quaver.QAT()
    net = trained(small(), quanter, steps=1)

    with pytest.raises(
        CaptureError, match=r"Look at input_spec: the model was called with InputSpec\(\[None, 5, 16, 16\]"
    ) as told:
        quanter.convert(net, [quaver.InputSpec([None, 5, 16, 16])])
    assert "branch" not in str(told.value)


def test_what_only_training_does_need_not_fit_in_a_graph(images):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 10, 3), nn.BatchNorm2d(10, momentum=None)

        def forward(self, x):
            x = self.bn(self.conv(x))
            if self.training and x.mean() > 0:
                x = 1.1 * x
            return x.mean((2, 3))

    quanter = quaver.QAT()
    net = trained(Noisy(), quanter)

    assert torch.equal(quanter.convert(net, SPEC)(images), net(images))


def test_a_float_model_is_refused():
    with pytest.raises(StageError, match=r"the model has no quantizers\. Call quantize\(net\) first"):
        quaver.QAT().convert(small(), SPEC)


def test_a_model_that_saw_no_data_is_refused():
    quanter = quaver.QAT()

    with pytest.raises(StageError, match=r"'image', '2.output', '4.output' saw no data"):
        quanter.convert(quanter.quantize(small()), SPEC)


def test_a_custom_quantizer_off_the_grid_is_refused_by_its_tensors_name():
    quanter = quaver.QAT(act_quantize_func=torch.nn.Identity)
    net = trained(small(), quanter, steps=1)

    with pytest.raises(ConversionError, match="'image': its custom quantize function is on no integer grid"):
        quanter.convert(net, SPEC)


def unparametrized(layer):
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")


COMPUTED = {
    "parametrized": torch.nn.utils.parametrizations.weight_norm,
    "weight norm": torch.nn.utils.weight_norm,
    "spectral norm": torch.nn.utils.spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("name", COMPUTED)
def test_a_weight_that_is_computed_is_stored_as_integers(name, images):
    net, quanter = small(), quaver.QAT()
    COMPUTED[name](net[3])
    trained(net, quanter, steps=1)

    frozen = quanter.convert(net, SPEC)

    assert torch.equal(frozen(images), net(images))
    assert all(op.quantized for op in frozen.ops() if op.type == "conv2d")


class OfTheInput(nn.Conv2d):
    """A pre-hook makes its weight from its input."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.direction = nn.Parameter(self.weight.detach().clone())
        del self._parameters["weight"]
        self.weight = self.direction.detach()
        self.register_forward_pre_hook(lambda layer, given: setattr(layer, "weight", layer.direction * given[0].mean()))


def test_a_weight_that_is_computed_from_the_input_is_refused_by_name():
    net, quanter = nn.Sequential(OfTheInput(3, 4, 3), nn.Flatten(), nn.Linear(784, 10)), quaver.QAT()
    trained(net, quanter, steps=1)

    with pytest.raises(ConversionError, match=r"'0.weight': the weight is computed from the input"):
        quanter.convert(net, SPEC)


def test_the_way_out_for_a_layer_that_was_parametrized_when_it_was_quantized_already_is_one(images):
    net, quanter = small(), quaver.QAT()
    quanter.quantize(net)
    torch.nn.utils.parametrizations.weight_norm(net[3])
    trained(net, quanter, steps=1)
    expected = net(images)

    for refuses in (lambda: quanter.remove(net), lambda: quanter.convert(net, SPEC)):
        with pytest.raises(
            ConversionError, match=r"'3': it was parametrized after it was quantized.*remove_parametrizations"
        ):
            refuses()
        assert torch.equal(net(images), expected)
    unparametrized(net[3])

    torch.testing.assert_close(quanter.convert(net, SPEC)(images), expected)
    assert type(quanter.remove(net)[3]) is nn.Conv2d


def test_abs_max_activations_are_evaluated_with_the_range_that_is_written(images):
    quanter = quaver.QAT({"activation_quantize_type": "abs_max"})
    net = trained(small(), quanter, steps=1)

    frozen = quanter.convert(net, SPEC)

    assert frozen.ops()[0].thresholds["input"] == [net[0].input_quantizer.threshold.item()]
    for batch in (images, 9 * images, images / 9):
        assert torch.equal(frozen(batch), net(batch))


def test_learned_steps_and_clips_are_bit_equal_on_the_engine(tmp_path, images):
    quanter = quaver.QAT({"activation_quantize_type": "learned_step"}, act_preprocess_func=PACT(0.9))
    net = trained(small(), quanter)

    artefact = quaver.export(quanter.convert(net, SPEC), tmp_path)

    with torch.no_grad():
        assert np.array_equal(quaver.runtime.load(artefact)(images.numpy()), net(images).numpy())


def test_two_inputs_have_their_names_and_a_fixed_batch_stays_fixed():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 3), nn.Linear(5, 3)

        def forward(self, x, y):
            return self.one(x) + self.two(y)

    quanter = quaver.QAT()
    net = quanter.quantize(Pair())
    net(torch.randn(6, 4), torch.randn(6, 5))

    frozen = quanter.convert(net.eval(), [quaver.InputSpec([6, 4], name="a"), quaver.InputSpec([6, 5])])

    assert [(leaf.name, leaf.shape) for leaf in frozen.signature.tensors] == [("a", (6, 4)), ("y", (6, 5))]


def test_examples_are_taken_for_an_input_spec():
    quanter = quaver.QAT()
    net = quanter.quantize(nn.Linear(4, 2))
    net(torch.randn(6, 4))

    frozen = quanter.convert(net.eval(), [torch.zeros(3, 4)])

    assert [(leaf.name, leaf.shape) for leaf in frozen.signature.tensors] == [("input", (None, 4))]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, r"input_spec: takes what the model is called with, such as \[quaver\.InputSpec"),
        ([], r"input_spec: takes what"),
        (["image"], r"input_spec: takes what"),
        ([quaver.InputSpec([1], name="a"), quaver.InputSpec([1], name="a")], "two inputs have one name: 'a', 'a'"),
    ],
)
def test_a_wrong_input_spec_is_refused(wrong, message):
    quanter = quaver.QAT()
    with pytest.raises(InputError, match=message):
        quanter.convert(quanter.quantize(small()), wrong)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ([None, None, 3], "float32", "only the first size, the batch, may be left open"),
        ([], "float32", "only the first size"),
        ([2, 0], "float32", "sizes are whole numbers above 0"),
        (3, "float32", r"shape=3: takes a list of sizes, such as \[None, 3, 32, 32\]"),
        ("abc", "float32", "shape='abc': takes a list of sizes"),
        ([2, 3], "float31", "takes a dtype or its name, such as 'float32'"),
    ],
)
def test_an_impossible_input_is_refused(shape, dtype, message):
    with pytest.raises(InputError, match=message):
        quaver.InputSpec(shape, dtype)


@pytest.mark.parametrize("name", [5, ""])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(InputError, match=rf"InputSpec: name={name!r}: takes a name"):
        quaver.InputSpec([None, 3], name=name)


@pytest.mark.parametrize("wrong", [None, 3])
def test_what_is_no_model_is_refused(wrong, tmp_path):
    with pytest.raises(InputError, match=r"QAT\.convert takes a live nn\.Module"):
        quaver.QAT().convert(wrong, SPEC)
    with pytest.raises(InputError, match=r"QAT\.save_quantized_model takes a live nn\.Module"):
        quaver.QAT().save_quantized_model(wrong, tmp_path, SPEC)


def test_a_path_that_is_none_is_refused():
    with pytest.raises(InputError, match="path=None: takes a folder"):
        quaver.QAT().save_quantized_model(small(), None, SPEC)


def test_minus_one_is_a_free_batch():
    assert quaver.InputSpec([-1, 3], torch.float64).shape == (None, 3)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_a_convolution_that_pads_with_values_is_written_on_integers(mode):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, padding_mode=mode), nn.Flatten(), nn.Linear(2048, 10))
    quanter = quaver.QAT()
    trained(net, quanter, steps=1)
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))

    frozen = quanter.convert(net, SPEC)

    assert torch.equal(frozen(images), net(images))
    (convolution,) = [op for op in frozen.ops() if op.type == "conv2d"]
    assert convolution.quantized
    assert convolution.thresholds["input"] == [net[0].input_quantizer.threshold.item()]
