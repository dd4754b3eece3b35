import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from quaver.data.binary import BinaryWriter


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(288, 10))
    prepared = quaver.quant_aware(net, example_inputs=(torch.randn(2, 3, 32, 32),)).train()
    prepared(torch.randn(8, 3, 32, 32))
    return quaver.save(prepared.eval(), tmp_path_factory.mktemp("program"))


@pytest.fixture
def data(tmp_path):
    generator = np.random.default_rng(0)
    with BinaryWriter(tmp_path / "data.bin", image_shape=(3, 32, 32), classes=10, layout="header") as writer:
        for label in range(10):
            writer.add(generator.standard_normal((3, 32, 32), np.float32), label)
    return tmp_path / "data.bin"


def run(*arguments):
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)], terminal_width=160)


def test_the_layers_are_shown_worst_first_and_written_as_json(program, data, tmp_path):
    done = run(program, data, "--json", tmp_path / "analysis.json")

    found = quaver.Analysis.load(tmp_path / "analysis.json")
    assert done.exit_code == 0, done.output
    assert found.images == 10
    shown = [line.split("│")[1].strip() for line in done.output.splitlines() if line.startswith("│")]
    assert shown == [layer.name for layer in found.worst_first()]


def test_digits_come_with_the_package(program, tmp_path):
    done = run(program, "digits", "--batch-num", 2, "--batch-size", 30, "--json", tmp_path / "analysis.json")

    assert done.exit_code == 0, done.output
    assert quaver.Analysis.load(tmp_path / "analysis.json").images == 60


def test_sensitivity_and_a_proposal_are_shown(program, data):
    done = run(program, data, "--sensitivity", 10, "--target-drop", 0.5)

    assert done.exit_code == 0, done.output
    assert "top-1 on 10 images: float" in done.output
    assert "Every layer can be quantized" in done.output


def test_only_as_many_rows_as_asked_for_are_shown(program, data):
    done = run(program, data, "--rows", 1)

    assert "1 of 4 quantized layers" in done.output


def test_without_a_file_it_is_said_that_nothing_was_kept(program, data):
    assert "--json FILE writes the analysis" in run(program, data).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.bin"], "no data set of this name. Known: digits"),
        (["digits", "--target-drop", "0.01"], "--sensitivity 512"),
        (["digits", "--json", "/dev/null/analysis.json", "--batch-num", "1"], "could not be written"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_exit_code_2(program, arguments, words):
    done = run(program, *arguments)

    assert done.exit_code == 2
    assert words in done.output
