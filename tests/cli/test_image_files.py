"""The command line with files that take a camera's bytes: written, verified, tested, measured."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from quaver.data.binary import BinaryWriter

pytest.importorskip("onnx")
pytest.importorskip("openvino")
IMAGE = quaver.ImageInput((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
IMAGES = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3)).astype(np.uint8)
FLAGS = ["--image_mean", "0.485,0.456,0.406", "--image_std", "0.229,0.224,0.225", "--image_color", "bgr"]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def write(path, images):
    with BinaryWriter(path, image_shape=images.shape[1:], classes=10, layout="header") as writer:
        for label, image in enumerate(images):
            writer.add(image, label)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A program, a file of it that takes bytes, a data file of images that come of bytes, and one of others."""
    place = tmp_path_factory.mktemp("bytes")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
    trained = quaver.quant_aware(net, example_inputs=(torch.zeros(2, 3, 8, 8),)).train()
    trained(torch.from_numpy(IMAGE.prepared(IMAGES)))
    quaver.save(quaver.convert(trained), place / "program")
    done = run("export", place / "program", place / "file", *FLAGS)
    assert done.exit_code == 0, done.output
    write(place / "data.bin", IMAGE.prepared(IMAGES))
    write(place / "other.bin", IMAGE.prepared(IMAGES) / 2)
    return place


def test_export_writes_a_file_that_takes_bytes(place):
    loaded = quaver.runtime.load(place / "file")

    assert loaded.image == quaver.ImageInput(IMAGE.mean, IMAGE.std, color="BGR")
    assert json.loads((place / "file" / "model.xml.json").read_text())["image"]["color"] == "BGR"


def test_the_tester_gives_it_the_bytes_that_the_images_came_of(place, tmp_path):
    logits = quaver.load(place / "program").eval()(torch.from_numpy(IMAGE.prepared(IMAGES)))

    done = run("test", "--infer_model", place / "file", "--infer_data", place / "data.bin", "--json", tmp_path / "j.json")

    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "j.json").read_text())["hits1"] == int((logits.argmax(1) == torch.arange(9)).sum())


def test_images_that_come_of_no_bytes_are_refused(place):
    done = run("test", "--infer_model", place / "file", "--infer_data", place / "other.bin")

    assert done.exit_code == 2
    assert "these images are no bytes with its mean and std" in " ".join(done.output.split())


def test_verify_and_bench_take_it(place, tmp_path):
    verified = run("verify", place / "program", place / "file", place / "data.bin")
    measured = run("bench", place / "file", "--batch-sizes", 1, "--rounds", 1, "--no-memory")

    assert verified.exit_code == 0, verified.output
    assert "integers   equal at all" in verified.output
    assert measured.exit_code == 0, measured.output


def test_flags_that_say_too_little_are_refused(place, tmp_path):
    without = run("export", place / "program", tmp_path, "--image_mean", "0.5,0.5,0.5")
    wrong = run("export", place / "program", tmp_path, "--image_mean", "0.5,x", "--image_std", "1")

    assert "--image_std is missing" in " ".join(without.output.split())
    assert "--image_mean '0.5,x': takes a number for each channel" in " ".join(wrong.output.split())
    assert (without.exit_code, wrong.exit_code) == (2, 2)
