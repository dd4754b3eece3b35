"""A detector on the command line: float, with quantizers, int8, on the engine, with average precision all the way."""

import json

import pytest
from typer.testing import CliRunner

import quaver
from quaver.cli.main import app
from quaver.data import Loader, open_dataset, write_shapes
from quaver.detection import Detection
from quaver.detection.anchors import anchors_of, published_anchors
from quaver.experiment.components import build_components
from quaver.experiment.start import start
from quaver.training.ranks import Ranks

pytestmark = pytest.mark.slow

SIZE = 32
ANCHORS = (9, 9, 12, 12, 15, 15, 18, 18, 22, 22, 26, 26, 30, 30, 36, 36, 44, 44)
# as the reference's detection scripts say it; 20 steps are an epoch here
BY_STEPS = [
    "--max_iters",
    "20",
    "--base_lr",
    "0.0005",
    "--lr_strategy",
    "piecewise_decay",
    "--gamma",
    "0.1",
    "--milestones",
    "10",
]
MODEL = ["--model", "yolov3_mobilenet_v1", "--model_options", "scale=0.25", "--image_shape", f"3,{SIZE},{SIZE}"]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("voc"), train=160, val=16, size=SIZE)


@pytest.fixture(scope="module")
def done(shapes, tmp_path_factory):
    """The folder of a whole run, what it printed, and its report."""
    out = tmp_path_factory.mktemp("out") / "run"
    result = run(
        "quantize", "--dataset", "voc", "--data_dir", shapes, *MODEL, "--anchors", ",".join(map(str, ANCHORS)),
        "--batch_size", "8", "--float_epochs", "3", "--float_lr", "0.01", *BY_STEPS, "--save_dir", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return out, result.output, json.loads((out / "report.json").read_text())


def test_the_engine_has_the_average_precision_of_the_simulation(done):
    _, _, report = done

    assert report["fp32_mAP50"] > 0
    assert report["qat_mAP50"] > 0  # and not much more, after so few steps
    for name in ("mAP", "mAP50"):
        assert report[f"qat_{name}"] == report[f"int8_{name}"] == report[f"deployed_{name}"]
    assert (report["agreement"], report["verified_images"]) == (1, 16)


def test_average_precision_is_in_the_log_and_in_the_metrics(done):
    out, output, report = done
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    evaluations = [(line["phase"], line["evaluation"]["mAP50"]) for line in lines if "evaluation" in line]

    assert [phase for phase, _ in evaluations] == ["float"] * 3 + ["quantize"]
    assert evaluations[-2:] == [("float", report["fp32_mAP50"]), ("quantize", report["qat_mAP50"])]
    assert f"epoch[0] - quantize, test set - mAP: {report['qat_mAP']:.4f}; mAP50: {report['qat_mAP50']:.4f}" in output


def test_training_ends_and_the_rate_falls_at_the_steps_that_the_flags_name(done):
    out, _, _ = done
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rates = [line["lr"] for line in lines if line["phase"] == "quantize" and "lr" in line]

    assert rates == pytest.approx([0.0005, 0.00005])  # of the batches 0 and 10
    assert lines[-1]["step"] == 20


def test_the_report_says_how_to_read_the_maps(done, shapes):
    out, _, report = done
    data = open_dataset("voc", "val", data_dir=shapes, image_size=SIZE)
    anchors = anchors_of([side for box in report["anchors"] for side in box])

    task = Detection(report["classes"], report["image_shape"][1], anchors)
    figures = task.evaluate(quaver.runtime.load(out / "int8" / "model.xml"), Loader(data, 8, shuffle=False))

    assert anchors == anchors_of(ANCHORS)
    assert figures["mAP50"] == report["deployed_mAP50"]


def test_the_page_shows_average_precision(done):
    out, _, _ = done

    assert run("report", out, "--out", out.parent / "page.html").exit_code == 0

    page = (out.parent / "page.html").read_text()
    assert "Average precision (mAP50)" in page
    assert "mAP50 on the test set" in page
    assert "Top-1" not in page


def test_a_detector_trains_as_detectors_do_unless_told_otherwise(shapes, tmp_path):
    (tmp_path / "recipe.yaml").write_text("train: {clip_norm: 3}\n")
    flags = {"data_dir": str(shapes), "model": "yolov3_mobilenet_v1", "lr": "0.001", "model_save_dir": str(tmp_path / "out")}

    recipe = start("train", tmp_path / "recipe.yaml", flags, "", print).recipe

    assert (recipe.train.optimizer, recipe.train.lr, recipe.train.clip_norm) == ("adamw", 0.001, 3)
    assert (recipe.quantize.optimizer, recipe.quantize.lr, recipe.quantize.clip_norm) == ("adamw", 0.0005, 10)
    assert build_components(recipe, Ranks()).task.anchors == published_anchors(416)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--label_smoothing", "0.1"], "label_smoothing: is for classification, and voc is detection"),
        (["--distill", "0.5"], "distill: learning from the float model's outputs is for classification"),
        (["--anchors", "9,9,12"], "18 numbers above 0"),
        (["--nesterov"], "needs the optimizer momentum"),
        (["--model", "resnet20"], "one is for detection, the other is not"),
    ],
)
def test_what_does_not_go_with_detection_is_refused(shapes, tmp_path, flags, message):
    done = run("quantize", "--data_dir", shapes, *MODEL, *flags, "--model_save_dir", tmp_path / "out")

    assert done.exit_code == 2
    assert message in done.output
    assert not (tmp_path / "out").exists()
