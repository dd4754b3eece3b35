"""The lines beside a file run it on an image with the engine alone, and give what Quaver gives."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import quaver
from quaver.data import open_dataset
from quaver.errors import ConfigError

pytest.importorskip("onnx")
WITHOUT_QUAVER = """
import runpy, sys
import numpy as np

sys.modules["quaver"] = None
script, sys.argv, answer = sys.argv[1], sys.argv[1:3], sys.argv[3]
np.save(answer, runpy.run_path(script)["outputs"][0])
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images of two classes, none of them square, as a data set."""
    place = tmp_path_factory.mktemp("images")
    chance = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (place / name).mkdir()
        for number, shape in enumerate([(40, 31, 3), (27, 60, 3)]):
            Image.fromarray(chance.integers(0, 256, shape).astype(np.uint8)).save(place / name / f"{number}.png")
    return open_dataset("folder", "val", data_dir=place, image_size=16)


@pytest.fixture(scope="module")
def program(data):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 2))
    captured = quaver.capture(net, (torch.zeros(2, 3, 16, 16),))
    captured.preprocessing = data.preprocessing
    qat = quaver.quant_aware(captured).train()
    qat(torch.stack([image for image, _ in data]))
    return quaver.convert(qat)


def run_alone(script, image, answer):
    """What the script printed, and its first output."""
    command = [sys.executable, "-c", WITHOUT_QUAVER, str(script), str(image), str(answer)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip(), np.load(answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "package", "options"),
    [
        ("openvino", "openvino", {}),
        ("onnx", "onnxruntime", {}),
        ("openvino", "openvino", {"layout": "NHWC", "color": "BGR"}),
        ("litert", "ai_edge_litert", {}),
    ],
)
def test_the_lines_beside_a_file_give_the_class_that_quaver_gives(program, data, target, package, options, tmp_path):
    pytest.importorskip(package)
    image = data.preprocessing.image(**options) if options else None
    file = quaver.export(program, tmp_path, target=target, image=image)
    prepared = data[1][0][None].numpy()
    expected = quaver.runtime.load(file)(prepared if image is None else image.images_of(prepared))

    printed, output = run_alone(f"{file}.py", data.path(1), tmp_path / "answer.npy")

    assert np.allclose(output, expected, atol=1e-4 * np.abs(expected).max())
    best = int(expected.argmax())
    assert printed == f"{best} {['cat', 'dog'][best]}"


def test_the_file_and_its_json_say_how_images_are_prepared(program, tmp_path):
    import onnx

    file = quaver.export(program, tmp_path, target="onnx")

    carried = json.loads({entry.key: entry.value for entry in onnx.load(file).metadata_props}["quaver"])["preprocessing"]
    beside = json.loads((tmp_path / "model.onnx.json").read_text())["preprocessing"]
    assert carried == beside == json.loads(json.dumps(program.preprocessing.record()))
    assert (beside["size"], beside["resize"], beside["filter"]) == ([16, 16], 18, "lanczos")
    assert (beside["crop"], beside["labels"]) == ("center", ["cat", "dog"])


@pytest.mark.slow
def test_a_file_written_anew_without_preprocessing_has_no_lines_of_the_old_one_beside_it(program, tmp_path):
    file = quaver.export(program, tmp_path, target="onnx")
    script = tmp_path / "model.onnx.py"
    assert script.exists()
    unknown = program.clone()
    unknown.preprocessing = None

    quaver.export(unknown, file, target="onnx")
    assert not script.exists()

    script.write_text("print('mine')")
    quaver.export(unknown, file, target="onnx")
    assert script.read_text() == "print('mine')"


def test_another_preprocessing_than_the_programs_images_is_refused(program, tmp_path):
    larger = quaver.Preprocessing((32, 32), (0.5,) * 3, (0.5,) * 3)

    with pytest.raises(ConfigError, match=r"gives images of \(3, 32, 32\).*takes 'input' \(None, 3, 16, 16\)"):
        quaver.export(program, tmp_path, target="onnx", preprocessing=larger)
    with pytest.raises(ConfigError, match=r"were prepared with.*Give both alike"):
        quaver.export(program, tmp_path, target="onnx", image=larger.image())
    with pytest.raises(ConfigError, match=r"takes a quaver\.Preprocessing"):
        quaver.export(program, tmp_path, target="onnx", preprocessing={"size": (16, 16)})
