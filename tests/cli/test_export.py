"""``quaver export``: what a file tells of its use."""

import json

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    place = tmp_path_factory.mktemp("program")
    quaver.save(quaver.capture(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), (torch.zeros(2, 3, 2, 2),)), place)
    return place


def export(program, out, *flags):
    return CliRunner().invoke(app, ["export", str(program), str(out), "--target", "onnx", *flags], env={"COLUMNS": "200"})


def test_labels_come_from_a_file_and_numbers_with_commas(program, tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\n")

    done = export(program, tmp_path, "--labels", str(tmp_path / "labels.txt"), "--mean", "1,2,3.5", "--std", "4,5,6")

    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "model.onnx.json").read_text())
    assert (record["labels"], record["mean"], record["std"]) == (["cat", "dog"], [1, 2, 3.5], [4, 5, 6])


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--labels", "nowhere.txt", "--labels nowhere.txt: cannot be read"),
        ("--mean", "many", "--mean 'many': takes numbers"),
    ],
)
def test_what_cannot_be_read_is_said(program, tmp_path, flag, value, words):
    done = export(program, tmp_path, flag, value)

    assert done.exit_code == 2
    assert words in done.output
