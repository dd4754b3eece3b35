import copy
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from quaver.data.binary import load_binary
from quaver.deployment import write_tree
from quaver.errors import InputError, QuaverWarning

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def frozen():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(216, 7),
    )
    qat = quaver.quant_aware(net, example_inputs=(torch.randn(2, 3, 8, 8),)).train()
    for _ in range(3):
        qat(torch.randn(8, 3, 8, 8))
    return quaver.convert(qat)


@pytest.fixture(scope="module")
def artefact(frozen, tmp_path_factory):
    return quaver.export(frozen, tmp_path_factory.mktemp("artefact"))


@pytest.fixture(scope="module")
def batches():
    torch.manual_seed(1)
    return [(torch.randn(9, 3, 8, 8), torch.randint(0, 7, (9,))) for _ in range(3)]


def with_other_weights(frozen):
    other = copy.deepcopy(frozen)
    with torch.no_grad():
        other.state_dict()["3.weight"].neg_()
    return other


def test_the_engine_agrees_to_the_last_integer(frozen, artefact, batches):
    result = quaver.verify(frozen, artefact, batches)

    assert (result.images, result.agreement, result.integers_equal, result.largest_difference) == (27, 1.0, 1.0, 0.0)
    assert len(result.layers) >= 3
    assert result.first_layer is None
    assert result.worst_layer is None
    assert result.accuracy_simulated == result.accuracy_deployed


def test_accuracies_count_every_image(frozen, artefact, batches):
    hits = sum(int((frozen(images).argmax(1) == labels).sum()) for images, labels in batches)

    result = quaver.verify(frozen, artefact, batches, layers=False)

    assert result.accuracy_simulated == hits / 27
    assert result.top5_simulated >= result.accuracy_simulated
    assert result.layers == []


def test_without_labels_there_is_agreement_and_no_accuracy(frozen, artefact, batches):
    result = quaver.verify(frozen, artefact, [images.numpy() for images, _ in batches])

    assert result.agreement == 1.0
    assert result.accuracy_simulated is None


def test_the_first_layer_that_differs_is_named(frozen, artefact, batches):
    result = quaver.verify(with_other_weights(frozen), artefact, batches)

    assert result.agreement < 1
    assert result.first_layer.name == "4"  # behind the convolution whose weights are others
    assert result.worst_layer.share >= result.first_layer.share > 0
    assert result.integers_equal < 1


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1), nn.Conv2d(8, 6, 3, 2)

    def forward(self, x):
        x = torch.relu(self.body(x))
        return self.first(x), self.second(x)


@pytest.fixture(scope="module")
def two_heads(tmp_path_factory, batches):
    """A program with two outputs, its file, and the program with one of them turned over."""
    torch.manual_seed(0)
    qat = quaver.quant_aware(TwoHeads(), example_inputs=(torch.randn(2, 3, 8, 8),)).train()
    qat(batches[0][0])
    frozen = quaver.convert(qat)
    other = copy.deepcopy(frozen)
    with torch.no_grad():
        other.state_dict()["second.weight"].neg_()
    return frozen, quaver.export(frozen, tmp_path_factory.mktemp("two_heads")), other


def test_every_output_counts(two_heads, batches):
    frozen, artefact, other = two_heads
    images = [images for images, _ in batches]

    same, changed = (quaver.verify(program, artefact, images, layers=False) for program in (frozen, other))

    assert (same.agreement, same.largest_difference) == (1, 0)
    assert changed.agreement < 0.5
    assert changed.largest_difference > 10


class BoxesAndMap(nn.Module):
    """What detectors and segmenters give: numbers per box, and a map of classes."""

    def __init__(self):
        super().__init__()
        self.body, self.boxes, self.map = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 1), nn.Conv2d(8, 5, 1)

    def forward(self, x):
        x = torch.relu(self.body(x))
        return self.boxes(x).flatten(2), self.map(x)


@pytest.fixture(scope="module")
def boxes_and_map(tmp_path_factory, batches):
    torch.manual_seed(0)
    qat = quaver.quant_aware(BoxesAndMap(), example_inputs=(torch.randn(2, 3, 8, 8),)).train()
    qat(batches[0][0])
    frozen = quaver.convert(qat)
    return frozen, quaver.export(frozen, tmp_path_factory.mktemp("boxes"))


def test_outputs_that_are_no_class_scores_are_counted_in_what_they_hold(boxes_and_map, batches):
    targets = [[{"boxes": torch.zeros(2, 4), "labels": torch.ones(2)}] * len(images) for images, _ in batches]
    pairs = [(images, target) for (images, _), target in zip(batches, targets, strict=True)]

    result = quaver.verify(*boxes_and_map, pairs)

    assert result.passed
    assert [(output.unit, output.counted) for output in result.output_agreement] == [("values", 5832), ("pixels", 972)]
    assert result.accuracy_deployed is None
    assert "agreement  'output_1': 100.0000% of 972 pixels have the same class" in str(result)
    assert "labels are not a class for each image" in result.note


def test_the_task_says_what_the_threshold_is_for(boxes_and_map, batches):
    frozen, artefact = boxes_and_map
    other = copy.deepcopy(frozen)
    with torch.no_grad():
        other.state_dict()["map.bias"][0] += 100
    images = [images for images, _ in batches]

    def agreement_fails(task):
        failures = quaver.verify(other, artefact, images, task=task, allow_share=1).failures
        return any(failure.startswith("agreement") for failure in failures)

    assert agreement_fails("segmentation")
    assert not agreement_fails("detection")
    assert not agreement_fails(None)
    with pytest.raises(quaver.errors.ConfigError, match="task"):
        quaver.verify(frozen, artefact, images, task="segmenting")


def test_a_float_program_and_no_batches_are_refused(frozen, artefact):
    model = nn.Conv2d(3, 4, 3)

    with pytest.raises(quaver.QuaverError, match="takes a quantized program"):
        quaver.verify(quaver.capture(model, (torch.zeros(1, 3, 8, 8),)), artefact, [])
    with pytest.raises(quaver.QuaverError, match="nothing was compared"):
        quaver.verify(frozen, artefact, [])
    with pytest.raises(quaver.QuaverError, match="a batch is images"):
        quaver.verify(frozen, artefact, ["images"])


@pytest.fixture
def data(tmp_path, batches):
    images = torch.cat([images for images, _ in batches]).numpy()
    labels = torch.cat([labels for _, labels in batches]).numpy()
    header = b"QUAVERB1" + np.array([len(labels), 3, 8, 8, 7], "<i8").tobytes()
    (tmp_path / "data.bin").write_bytes(header + images.astype("<f4").tobytes() + labels.astype("<i8").tobytes())
    assert len(load_binary(tmp_path / "data.bin")) == 27
    return tmp_path / "data.bin"


def test_the_command_says_that_all_integers_are_equal(frozen, artefact, data, tmp_path):
    quaver.save(frozen, tmp_path / "program")

    command = ["verify", *map(str, [tmp_path / "program", artefact, data]), "--json", str(tmp_path / "out.json")]
    done = CliRunner().invoke(app, command)

    assert done.exit_code == 0, done.output
    assert "equal at all" in done.output
    assert json.loads((tmp_path / "out.json").read_text())["agreement"] == 1.0


@pytest.mark.parametrize("named", [["{}"], ["--data_dir", "{}"], ["--dataset", "folder", "--data-dir", "{}"]])
def test_the_command_takes_a_data_set_as_analyze_does(frozen, artefact, tmp_path, named):
    quaver.save(frozen, tmp_path / "program")
    for split, name in (("train", "cat"), ("train", "dog"), ("val", "cat"), ("val", "dog")):
        (tmp_path / "images" / split / name).mkdir(parents=True)
        for number in range(2):
            pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / split / name / f"{number}.png")
    words = [word.format(tmp_path / "images") for word in named]

    done = CliRunner().invoke(
        app, ["verify", str(tmp_path / "program"), str(artefact), *words, "--json", str(tmp_path / "out.json")]
    )

    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["images"], record["agreement"]) == (4, 1.0)
    assert record["accuracy_deployed"] is not None


def test_the_command_fails_and_says_where(frozen, artefact, data, tmp_path):
    quaver.save(with_other_weights(frozen), tmp_path / "program")

    done = CliRunner().invoke(app, ["verify", *map(str, [tmp_path / "program", artefact, data])])

    assert done.exit_code == 1
    words = " ".join(done.output.split())
    assert re.search(r"FAILED: .* '4': \d+ of 5832 integers differ, by up to \S+ steps", words)
    assert "is below" in words


def test_convert_writes_the_tree_and_each_part_runs(frozen, tmp_path):
    quaver.save(frozen, tmp_path / "program")
    images = torch.randn(2, 3, 8, 8)

    done = CliRunner().invoke(app, ["convert", str(tmp_path / "program"), str(tmp_path / "out")])

    assert done.exit_code == 0, done.output
    expected = frozen(images)
    assert torch.equal(quaver.load(tmp_path / "out" / "float")(images), expected)
    assert torch.equal(quaver.load(tmp_path / "out" / "int8")(images), expected)
    assert np.array_equal(quaver.runtime.load(tmp_path / "out" / "int8" / "model.xml")(images.numpy()), expected.numpy())
    assert quaver.load(tmp_path / "out" / "mobile")(images).shape == expected.shape


def test_a_program_without_a_mobile_form_is_written_in_the_others_and_that_is_said(tmp_path):
    images = torch.randn(8, 3, 8, 8)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 7))
    qat = quaver.quant_aware(net, example_inputs=(images,))
    seen = quaver.quant_aware(net, example_inputs=(images,)).train()
    seen(images)
    analysis = quaver.analyze(quaver.convert(seen), [images])  # which says nothing of the last layer's output
    analysis.initialise(qat)
    quaver.save(quaver.convert(qat), tmp_path / "program")

    done = CliRunner().invoke(app, ["convert", str(tmp_path / "program"), str(tmp_path / "out")])

    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["float", "int8"]
    assert (tmp_path / "out" / "int8" / "model.xml").exists()
    assert "mobile/ is left out: '3': the range of its output was not observed" in " ".join(done.output.split())
    with pytest.warns(QuaverWarning, match="mobile/ is left out"):
        write_tree(quaver.load(tmp_path / "program"), tmp_path / "again")


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 4, 1), nn.Conv2d(2, 4, 1)

    def forward(self, x, y):
        return self.left(x) + self.right(y)


def test_a_model_may_have_several_inputs(tmp_path):
    batch = torch.randn(4, 3, 6, 6), torch.randn(4, 2, 6, 6)
    qat = quaver.quant_aware(TwoInputs(), example_inputs=batch)
    qat(*batch)
    frozen = quaver.convert(qat.eval())
    file = quaver.export(frozen, tmp_path, target="onnx")

    assert quaver.verify(frozen, file, [batch]).integers_equal == 1.0
    with pytest.raises(InputError, match="has 2 inputs"):
        quaver.verify(frozen, file, [batch[0]])


# the verdict


def test_the_verdict_is_read_at_a_glance(frozen, artefact, batches):
    good, bad = (quaver.verify(program, artefact, batches) for program in (frozen, with_other_weights(frozen)))

    assert good.passed
    assert str(good).endswith("passed: the engine computes what was trained")
    assert f"equal at all {len(good.layers)} quantized tensors" in str(good)
    assert not bad.passed
    assert re.search(r"FAILED: .*\n  '4': \d+ of 5832 integers differ, by up to \S+ steps \(0.0001 are allowed\)", str(bad))
    assert not any(words.startswith("'2'") for words in bad.failures)  # in front of the other weights nothing is wrong


def test_what_follows_from_a_difference_is_not_held_against_the_tensors_behind(frozen, artefact, batches):
    """Only the one tensor is wrong, given what the engine computed in front of each."""
    other = copy.deepcopy(frozen)
    with torch.no_grad():
        other.state_dict()["3.weight"][0, 0, 0, 0] += 1

    result = quaver.verify(other, artefact, batches)

    assert sum(layer.differ > 0 for layer in result.layers) > 1 or result.largest_difference > 0
    assert [layer.name for layer in result.layers if layer.beyond] == ["4"]


def test_thresholds_for_the_tolerant(frozen, artefact, batches):
    other = copy.deepcopy(frozen)
    with torch.no_grad():
        other.state_dict()["3.weight"][0, 0, 0, 0] += 1

    def failures(**options):
        return quaver.verify(other, artefact, batches, threshold=0, **options).failures

    assert failures() != []
    assert failures(allow_steps=1) == []
    assert failures(allow_share=1) == []
    with pytest.raises(quaver.errors.ConfigError, match="allow_share"):
        failures(allow_share=2)


def test_a_verify_that_compared_no_layers_says_so(frozen, artefact, batches):
    assert "not compared: only the outputs were" in str(quaver.verify(frozen, artefact, batches, layers=False))


def test_without_layers_the_outputs_of_an_exact_engine_must_be_equal(frozen, artefact, batches):
    other = copy.deepcopy(frozen)
    with torch.no_grad():
        other.state_dict()["6.bias"][0] += 1e-4

    result = quaver.verify(other, artefact, batches, layers=False)

    assert result.agreement == 1
    assert re.search(r"output 'output': 27 of 189 values differ", result.failures[0])


class Sometimes(nn.Module):
    """Gives NaN for images whose mean is above 0.1 and nothing else."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.layer(x).flatten(1) + torch.log(0.1 - x.mean((1, 2, 3))).unsqueeze(1)


def test_nan_in_both_is_a_failure_with_the_tensors_name(tmp_path):
    quiet, loud = torch.zeros(4, 3, 8, 8), torch.full((4, 3, 8, 8), 0.5)
    qat = quaver.quant_aware(Sometimes(), example_inputs=(quiet,)).train()
    qat(torch.randn(8, 3, 8, 8).sub(1))
    frozen = quaver.convert(qat)
    file = quaver.export(frozen, tmp_path)

    assert quaver.verify(frozen, file, [quiet]).passed
    assert quaver.verify(frozen, file, [loud]).failures[0] == "'log': 4 of 4 values are NaN or Inf"


def test_images_that_hold_nan_are_left_out_and_that_is_said(frozen, artefact, batches):
    images, labels = batches[0][0].clone(), batches[0][1]
    images[2, 0, 0, 0] = float("nan")
    images[5, 1, 2, 3] = float("inf")

    result = quaver.verify(frozen, artefact, [(images, labels)])

    assert (result.passed, result.images, result.excluded) == (True, 7, 2)
    assert "7 (2 that hold NaN or Inf were left out)" in str(result)
    with pytest.raises(InputError, match="all 9 images hold NaN or Inf"):
        quaver.verify(frozen, artefact, [torch.full_like(images, torch.nan)])


class Gated(nn.Module):
    """A tanh, which engines approximate, and two layers behind it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(8, 8, 3) for _ in range(3))

    def forward(self, x):
        return self.third(torch.relu(self.second(torch.tanh(self.first(x)))))


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_where_an_engine_approximates_it_may_round_otherwise_near_a_tie_and_only_there(tmp_path, target):
    torch.manual_seed(0)
    images = torch.randn(64, 8, 16, 16)
    qat = quaver.quant_aware(Gated(), {"target": target}, example_inputs=(images,)).train()
    qat(images)
    frozen = quaver.convert(qat)
    other = copy.deepcopy(frozen)
    with torch.no_grad():
        other.state_dict()["first.weight"][0, 0, 0, 0] += 1
    file = quaver.export(frozen, tmp_path, target=target)

    same, changed = (quaver.verify(program, file, [images]) for program in (frozen, other))

    assert same.passed, same
    assert not next(layer for layer in same.layers if layer.name.startswith("tanh")).exact
    assert changed.failures != []


def test_agreement_does_not_decide_where_outputs_are_no_class_scores(two_heads, batches):
    _, artefact, other = two_heads

    result = quaver.verify(other, artefact, [images for images, _ in batches])

    assert result.agreement < 0.999
    assert [words[:17] for words in result.failures] == ["output 'output_1'"]
    assert quaver.verify(other, artefact, [batches[0][0]], allow_share=1).passed
