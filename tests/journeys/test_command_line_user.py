"""A user of the command line: a folder of photographs, and nothing of Python but the model."""

import json
import shlex

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from quaver.cli.main import app

pytestmark = pytest.mark.slow

SCRIPT = """
quaver train --model tiny:net --data_dir photos --image_shape 3,16,16 --batch_size 8 --num_epochs 4 --lr 0.05 --model_save_dir float_run
quaver quantize --model tiny:net --data_dir photos --image_shape 3,16,16 --batch_size 8 --num_epochs 1 --pretrained_fp32_model float_run/fp32.safetensors --model_save_dir run
quaver convert-data photos photos/list.txt test.bin --size 16 --classes 3
quaver test --infer_model run/int8 --infer_data test.bin --batch_size 8 --json test.json
quaver bench run/int8 --float run/fp32 --batch-sizes 1 --rounds 2 --warmup 1 --no-memory --throughput --json bench.json
quaver report run
"""  # noqa: E501


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder per class, of red, green and blue squares in noise, and a list of all of them."""
    monkeypatch.chdir(tmp_path)
    generator, lines = np.random.default_rng(0), []
    for label, colour in enumerate(("blue", "green", "red")):
        folder = tmp_path / "photos" / colour
        folder.mkdir(parents=True)
        for number in range(10):
            pixels = generator.integers(0, 60, (20, 20, 3), np.uint8)
            pixels[..., 2 - label] += 150
            Image.fromarray(pixels).save(folder / f"{number}.jpg")
            lines.append(f"{colour}/{number}.jpg {label}")
    (tmp_path / "photos" / "list.txt").write_text("\n".join(lines))
    return tmp_path


def test_from_a_folder_of_photographs_to_a_report_on_the_model_that_runs(photos):
    for line in SCRIPT.strip().splitlines():
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"

    report = json.loads((photos / "run" / "report.json").read_text())
    assert report["agreement"] == report["integers_equal"] == 1
    assert report["classes"] == 3
    assert "int8_top5" not in report
    assert json.loads((photos / "test.json").read_text())["images"] == 30
    bench = json.loads((photos / "bench.json").read_text())
    assert {row["is_float"] for row in bench["throughputs"]} == {False, True}
    assert (photos / "run" / "report.html").read_text().startswith("<!doctype html>")
