import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import quaver
from quaver.errors import StorageError


@pytest.fixture(scope="module")
def analysis():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    images = torch.randn(6, 3, 8, 8)
    return quaver.analyze(net, [(images, torch.zeros(6).long())], sensitivity_images=6, target_drop=0.5)


@pytest.fixture
def file(analysis, tmp_path):
    return analysis.save(tmp_path / "folder" / "analysis.json")


def test_what_is_read_is_what_was_written(analysis, file):
    assert quaver.Analysis.load(file) == analysis


def test_the_file_says_what_it_is(file):
    content = json.loads(file.read_text())

    assert (content["format"], content["version"], content["quaver"]) == ("quaver.analysis", 1, quaver.__version__)


def test_a_figure_that_json_does_not_have_is_an_error_of_ours(analysis, tmp_path):
    strange = replace(analysis, moving_rate=float("nan"))

    with pytest.raises(StorageError, match="could not be written"):
        strange.save(tmp_path / "analysis.json")


def test_a_file_from_before_nan_was_counted_is_read(analysis, file):
    def take_away(content):
        del content["never_finite"], content["sensitivity"]["left_out"]
        for weight in content["weights"]:
            del weight["not_finite"]

    changed(file, take_away)

    assert quaver.Analysis.load(file) == analysis


def test_it_is_plain_json_without_nan(file):
    strange = []

    json.loads(file.read_text(), parse_constant=strange.append)

    assert strange == []


def changed(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(format="other"), "not an analysis"),
        (lambda content: content.update(version=2), "version 2 of the format"),
        (lambda content: content.pop("tensors"), "lacks 'tensors'"),
        (lambda content: content.update(more=1), "unknown field 'more'"),
        (lambda content: content.update(images="many"), 'images is "many", not a whole number'),
        (lambda content: content.update(images=True), "images is true, not a whole number"),
        (lambda content: content.update(tensors={}), "tensors is {}, not a list"),
        (lambda content: content.update(sensitivity=[]), r"sensitivity is \[\], not an object"),
        (lambda content: content["tensors"][0].update(threshold=None), r"tensors\[0\].threshold is null, not a finite"),
        (lambda content: content["tensors"][0].update(largest=float("nan")), "not a finite number"),
        (lambda content: content["tensors"][0].update(moving_max=-1), "has a negative range"),
        (lambda content: content["tensors"][0].update(slot=-1), "has a negative range"),
        (lambda content: content["tensors"][0]["percentiles"].update({"99": -1.0}), "that is missing or negative"),
        (lambda content: content["tensors"][0]["percentiles"].pop("99"), "a percentile that is missing"),
        (lambda content: content["tensors"][0].update(name=3), "not a text"),
        (lambda content: content["tensors"].append(content["tensors"][0]), "tensors has a name twice"),
        (lambda content: content["tensors"][0]["histogram"].update(counts=[]), "a histogram has no bins"),
        (lambda content: content["weights"][0]["histogram"].update(end=-9), "no width"),
        (lambda content: content["weights"][0]["percentiles"].update({"50": "x"}), "not a finite number"),
        (lambda content: content["tensors"][0].update(rounded="yes"), "not true or false"),
    ],
)
def test_a_file_that_is_not_as_written_is_refused_with_the_place(file, change, message):
    changed(file, change)

    with pytest.raises(StorageError, match=message):
        quaver.Analysis.load(file)


def test_a_file_that_was_cut_off_is_refused(file):
    file.write_text(file.read_text()[:-200])

    with pytest.raises(StorageError, match="damaged or was cut off"):
        quaver.Analysis.load(file)


def test_a_file_that_is_not_there_says_how_to_make_it(tmp_path):
    with pytest.raises(StorageError, match="quaver analyze writes one"):
        quaver.Analysis.load(tmp_path / "none.json")


def test_a_file_of_other_bytes_is_refused(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "list").write_text("[1, 2]")

    with pytest.raises(StorageError, match="cannot be read"):
        quaver.Analysis.load(tmp_path / "bytes")
    with pytest.raises(StorageError, match="not an analysis"):
        quaver.Analysis.load(tmp_path / "list")


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(analysis, tmp_path):
    (tmp_path / "taken").write_text("")

    with pytest.raises(StorageError, match="could not be written"):
        analysis.save(tmp_path / "taken" / "analysis.json")
