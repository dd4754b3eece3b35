"""``quaver train``, ``quaver quantize`` and ``quaver check``, as a user types them."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import quaver
from quaver.analysis import Analysis
from quaver.cli.main import app
from quaver.cli.train import deployed_title
from quaver.config.options import options_of
from quaver.config.recipe import Phase, QuantPhase, Recipe
from quaver.data import Loader, open_dataset
from quaver.data.binary import BinaryWriter
from quaver.experiment import results
from quaver.training.classification import Classification

pytestmark = pytest.mark.slow

SMALL = ["--model", "tiny:net", "--image_shape", "3,8,8", "--batch_size", "128", "--use_gpu", "false"]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """A run of quantize with nothing but a model and a length. That equal runs are equal is asked in test_crash.py."""
    place = tmp_path_factory.mktemp("quantized")
    flags = ["--float_epochs", "1", "--num_epochs", "1", "--seed", "0", "--log_period", "5"]
    done = run("quantize", *SMALL, *flags, "--model_save_dir", place / "one")
    assert done.exit_code == 0, done.output
    return place, done.output


def test_the_tree_has_checkpoints_artefacts_and_a_report(quantized):
    place, _ = quantized

    found = sorted(path.name for path in (place / "one").iterdir())

    assert found == [
        "checkpoints",
        "float",
        "fp32",
        "fp32.safetensors",
        "int8",
        "metrics.jsonl",
        "mobile",
        "report.json",
        "run.json",
        "train.log",
    ]
    assert (place / "one" / "int8" / "model.xml").exists()


def test_every_file_of_a_run_says_how_images_were_prepared_and_what_the_classes_are_called(quantized):
    place, _ = quantized
    files = [file for folder in ("int8", "fp32") for file in sorted((place / "one" / folder).glob("model.*.json"))]

    found = [json.loads(file.read_text())["preprocessing"] for file in files]

    assert len(found) >= 2
    assert all((about["size"], about["labels"]) == ([8, 8], [*"0123456789"]) for about in found)
    assert all(file.with_suffix(".py").exists() for file in files)


def test_the_float_model_is_there_for_the_testers(quantized, tmp_path):
    place, output = quantized
    report = json.loads((place / "one" / "report.json").read_text())
    data = tmp_path / "data.bin"
    with BinaryWriter(data, image_shape=(3, 8, 8), classes=10, layout="header") as writer:
        for image, label in open_dataset("digits", "val", image_size=8):
            writer.add(image.numpy(), label)

    done = run("test", "--infer_model", place / "one" / "fp32", "--infer_data", data, "--json", tmp_path / "json")

    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "json").read_text())["acc1"] == report["fp32_top1"] != report["int8_top1"]
    assert "fp32/ is the float model. float/ is the int8 one" in output
    assert "It is not the float model" in (place / "one" / "float" / "README.txt").read_text()


def test_the_report_has_the_figures_of_float_simulated_and_deployed(quantized):
    place, output = quantized
    report = json.loads((place / "one" / "report.json").read_text())

    assert {"fp32_top1", "qat_top1", "int8_top1", "deployed_top1", "agreement", "fp32_bytes", "int8_bytes"} <= report.keys()
    assert report["qat_top1"] == report["int8_top1"] == report["deployed_top1"]
    assert report["test_images"] == report["verified_images"] == 359
    assert f"{report['int8_top1']:.4f}" in output


def test_figures_of_fewer_images_are_called_so(quantized):
    place, output = quantized
    report = json.loads((place / "one" / "report.json").read_text())

    assert deployed_title(report) == "int8, openvino"
    assert deployed_title(report | {"verified_images": 200}) == "int8, openvino, first 200 images"
    assert "int8, openvino" in output
    assert "first 359" not in output


def test_the_int8_program_gives_the_figures_of_the_report(quantized):
    place, _ = quantized
    report = json.loads((place / "one" / "report.json").read_text())
    loader = Loader(open_dataset("digits", "val", image_size=8), 100, shuffle=False)

    figures = Classification().evaluate(quaver.load(place / "one" / "int8"), loader)

    assert figures["top1"] == report["int8_top1"]


def test_log_lines_have_the_form_of_the_reference_behind_their_phase(quantized):
    _, output = quantized
    figures = r"loss: [\d.]+; acc_top1: [\d.]+; acc_top5: [\d.]+; time: [\d.]+; eta: \d+:\d\d:\d\d"

    lines = [line for line in output.splitlines() if "]-batch[" in line]

    for line, phase in zip(lines, ["float"] * 3 + ["quantize"] * 3, strict=True):
        assert re.fullmatch(rf"{phase} epoch\[\d+\]-batch\[\d+\] - {figures}", line)


def test_the_log_file_has_the_same_lines_with_date_and_level(quantized):
    place, output = quantized
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}-INFO: (.*)"

    lines = [re.fullmatch(stamp, line)[1] for line in (place / "one" / "train.log").read_text().splitlines()]

    assert lines
    assert [line for line in lines if line.startswith("epoch[")] == [
        re.sub(r"^\w+ (?=epoch)", "", line) for line in output.splitlines() if re.match(r"(\w+ )?epoch\[", line)
    ]
    assert any("training a float model first" in line for line in lines)
    assert [line.split(":")[0] for line in lines if ": from step 0 to step " in line] == ["float", "quantize"]


def test_standard_output_has_the_results_alone(tmp_path):
    done = run("train", *SMALL, "--num_epochs", "1", "--model_save_dir", tmp_path / "out")

    assert done.exit_code == 0, done.output
    assert "]-batch[" in done.stderr
    assert "]-batch[" not in done.stdout
    assert "Weights are in" in done.stdout
    assert "Weights are in" not in done.stderr


def test_metrics_are_lines_of_json_without_a_time(quantized):
    place, _ = quantized

    lines = [json.loads(line) for line in (place / "one" / "metrics.jsonl").read_text().splitlines()]

    assert [line["phase"] for line in lines] == ["float"] * 4 + ["quantize"] * 4
    assert lines[0].keys() == {"phase", "epoch", "batch", "step", "loss", "acc_top1", "acc_top5", "lr"}
    assert lines[3]["evaluation"]["images"] == 359


def test_the_output_says_that_a_float_model_is_trained_first(quantized):
    assert "no --pretrained_fp32_model: training a float model first (--float_epochs 1)" in quantized[1]


def test_train_then_quantize_with_its_weights(tmp_path):
    trained = run("train", *SMALL, "--num_epochs", "1", "--model_save_dir", tmp_path / "float")
    weights = tmp_path / "float" / "fp32.safetensors"
    done = run(
        "quantize", *SMALL, "--pretrained-fp32-model", weights, "--num-epochs", "0", "--verify_images", "0",
        "--calibrate", "false", "--model_save_dir", tmp_path / "int8",
    )  # fmt: skip

    assert (trained.exit_code, done.exit_code) == (0, 2)  # quantizers that saw no data cannot be converted
    assert "saw no data" in done.output
    assert {"model.xml", "model.onnx", "README.txt"} <= {path.name for path in (tmp_path / "float" / "fp32").iterdir()}
    report = json.loads((tmp_path / "float" / "report.json").read_text())
    kept = load_file(tmp_path / "int8" / "fp32.safetensors")
    assert report["fp32_top1"] > 0
    assert all(torch.equal(kept[name], tensor) for name, tensor in load_file(weights).items())


def test_the_command_that_training_ends_with_works_in_the_same_folder(tmp_path):
    flags = ["--model", "tiny:net", "--class_dim", "12", "--image_shape", "3,8,8"]
    trained = run("train", *flags, "--num_epochs", "1", "--model_save_dir", tmp_path)
    advice = shlex.split(re.search(r"; quaver (quantize .*) goes on with them", trained.output)[1])
    weights = (tmp_path / "fp32.safetensors").read_bytes()

    done = run(*advice, "--init_from", "data", "--num_epochs", "0", "--model_save_dir", tmp_path)

    assert done.exit_code == 0, done.output
    assert {"--model", "--class_dim", "--image_shape"} < set(advice)
    assert (tmp_path / "fp32.safetensors").read_bytes() == weights
    assert (tmp_path / "previous" / "1" / "report.json").exists()


def test_a_form_that_cannot_be_made_is_left_out_and_said(quantized, tmp_path):
    place, _ = quantized
    run("analyze", place / "one" / "int8", "digits", "--batch-num", 1, "--json", tmp_path / "analysis.json")
    start = ["--pretrained_fp32_model", place / "one", "--init_from", tmp_path / "analysis.json", "--num_epochs", "0"]

    done = run("quantize", *SMALL, *start, "--model_save_dir", tmp_path / "out")

    assert done.exit_code == 0, done.output
    assert "warning: mobile/ is left out: " in done.output
    assert "float/, int8/, fp32/, report.json." in done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "was not observed" in report["left_out"][0]
    assert (tmp_path / "out" / "int8" / "model.xml").exists()


def test_weights_of_another_model_are_listed(tmp_path):
    run("train", *SMALL, "--num_epochs", "0", "--model_save_dir", tmp_path / "float")

    done = run(
        "quantize", "--model", "resnet20", "--pretrained_fp32_model", tmp_path / "float", "--model_save_dir", tmp_path
    )

    assert done.exit_code == 2
    assert "fp32.safetensors: does not fit" in done.output
    assert "missing from the file: " in done.output


def test_every_option_of_a_recipe_is_a_flag_in_both_spellings():
    plain = run("quantize", "--help").output

    for name in [*options_of(Recipe), *options_of(QuantPhase), "float_epochs", "float_lr", "recipe", "checkpoint"]:
        assert f"--{name}" in plain, name
    assert run("train", "--num-epochs", "x").exit_code == run("train", "--num_epochs", "x").exit_code == 2
    assert set(options_of(Phase)) <= set(options_of(QuantPhase))


REFERENCE = (
    "model pretrained_fp32_model checkpoint use_gpu data_dir batch_size total_images class_dim image_shape model_save_dir "
    "lr_strategy num_epochs lr act_quant_type wt_quant_type"
)


def test_every_flag_of_the_reference_is_known_by_its_name():
    shown = run("quantize", "--help").output

    assert [flag for flag in REFERENCE.split() if f"--{flag} " not in shown] == []


def test_the_flags_of_the_references_other_scripts_are_known(tmp_path):
    """Those of quant_aware, pact_quant_aware and of its detection, as they are written there."""
    trained = run("train", *SMALL, "--max_iters", "1", "--checkpoint_dir", tmp_path / "float", "--data", "digits")
    flags = "--lr_strategy piecewise_decay --step_epochs 30 60 90 --milestones 2 --gamma 0.5 --base_lr 0.25 --warmup-steps 1"
    pact = "--use_pact True --pact_lr 0.125 --pact_l2_decay 0 --max_iters=3 --log_period 1 --verify_images 0"

    done = run(
        "quantize", *SMALL, "--pretrained_model", tmp_path / "float", *flags.split(), *pact.split(),
        "--output_dir", tmp_path / "out",
    )  # fmt: skip

    assert (trained.exit_code, done.exit_code) == (0, 0), done.output
    assert '"lr_step_epochs":[30,60,90]' in (tmp_path / "out" / "run.json").read_text()
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["lr"] for line in lines if "lr" in line] == [0.125, 0.25, 0.125]


@pytest.mark.parametrize(
    ("flag", "way"),
    [("--checkpoint_epoch=3", "--checkpoint"), ("-o", "--base_lr"), ("-c", "--recipe"), ("--use_tb", "--tensorboard")],
)
def test_flags_without_a_counterpart_are_refused_with_the_way_here(flag, way):
    done = run("quantize", flag, "1")

    assert done.exit_code == 2
    assert flag in done.output
    assert way in done.output


def test_a_recipe_may_have_the_references_names(tmp_path):
    (tmp_path / "recipe.yaml").write_text("pretrained_model: none.pth\nquantize: {base_lr: 0.5, milestones: [3]}\n")

    done = run("check", tmp_path / "recipe.yaml")

    assert "pretrained_fp32_model='none.pth': there is no such file" in done.output
    assert "lr_step_iters=3: is for piecewise_decay" in done.output
    assert "2 problems" in done.output


def test_all_wrong_flags_are_told_at_once(tmp_path):
    done = run(
        "quantize", "--lr", "fast", "--lr_strategy", "cosin_decay", "--use_gpu", "maybe", "--model_save_dir", tmp_path
    )

    assert done.exit_code == 2
    for words in ("lr='fast': takes a number", "Did you mean 'cosine_decay'?", "use_gpu='maybe': takes one of"):
        assert words in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_true_or_false_flag_may_stand_alone(tmp_path):
    done = run("train", *SMALL, "--nesterov", "--num_epochs", "0", "--model_save_dir", tmp_path, "--nesterov")
    record = next((tmp_path / "checkpoints").glob("*.json")).read_text()

    assert done.exit_code == 0, done.output
    assert '"nesterov":true' in record


def test_a_finished_run_can_be_gone_on_with_and_ends_at_once(tmp_path):
    first = run("train", *SMALL, "--num_epochs", "1", "--model_save_dir", tmp_path)
    before = (tmp_path / "fp32.safetensors").read_bytes()

    again = run("train", "--checkpoint", tmp_path, "--model", "tiny:net")

    assert (first.exit_code, again.exit_code) == (0, 0)
    assert "batch[0]" not in again.output
    assert (tmp_path / "fp32.safetensors").read_bytes() == before


def test_a_run_goes_on_with_more_epochs(tmp_path):
    run("train", *SMALL, "--num_epochs", "1", "--model_save_dir", tmp_path)

    done = run("train", "--checkpoint", tmp_path, "--model", "tiny:net", "--num_epochs", "2")

    assert done.exit_code == 0
    assert "train.num_epochs is not what the run was started with" in done.output
    assert "epoch[1]-batch[0]" in done.output
    assert "epoch[0]-batch[0]" not in done.output


def test_an_accelerator_that_is_not_there_is_refused(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")

    done = run("train", "--use_gpu", "true", "--model_save_dir", tmp_path)

    assert done.exit_code == 2
    assert "torch finds no accelerator here" in done.output


# check


def test_check_reports_every_problem_and_fails(tmp_path):
    (tmp_path / "recipe.yaml").write_text("modell: x\nmodel: MobilNetV1\nbatch_size: 0\nquantize: {lrs: 1}\n")

    done = run("check", tmp_path / "recipe.yaml")

    assert done.exit_code == 1
    assert "4 problems" in done.output
    for words in ("'modell'", "'mobilenet_v1'", "batch_size=0", "'lrs'"):
        assert words in done.output


def test_check_of_a_good_recipe_says_so(tmp_path):
    (tmp_path / "recipe.yaml").write_text("model: resnet20\nquantize: {num_epochs: 3, freeze_observers_epoch: 2}\n")

    done = run("check", tmp_path / "recipe.yaml")

    assert done.exit_code == 0
    assert "nothing is wrong with it" in done.output


def test_check_shows_the_machine_and_writes_it(tmp_path):
    done = run("check", "--machine", "--json", tmp_path / "machine.json")

    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "machine.json").read_text())
    assert written["cpu"]["model"] in done.output
    for fact in written["facts"]:
        assert f"{fact['name']} {fact['found']}".strip() in done.output


def test_check_without_anything_to_look_at_is_refused():
    done = run("check")

    assert done.exit_code == 2
    assert "--machine" in done.output


def test_a_recipe_is_carried_out(tmp_path):
    (tmp_path / "recipe.yaml").write_text(
        f"model: tiny:net\nimage_shape: '3,8,8'\nmodel_save_dir: {tmp_path / 'out'}\ntrain: {{num_epochs: 0}}\n"
    )

    done = run("train", "--recipe", tmp_path / "recipe.yaml")

    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "report.json").exists()


# TensorBoard


def test_tensorboard_that_is_not_installed_is_one_message(tmp_path):
    code = "import sys; sys.modules['tensorboard'] = None; from quaver.cli.main import main; main()"
    command = [sys.executable, "-c", code, "train", *SMALL, "--tensorboard", "--model_save_dir", str(tmp_path / "out")]
    environment = {"PYTHONPATH": f"{Path(quaver.__file__).parent.parent}:{Path(__file__).parent.parent}", "PATH": ""}

    done = subprocess.run(command, capture_output=True, text=True, env=environment)

    assert done.returncode == 2
    assert 'pip install "quaver[tensorboard]"' in done.stderr.replace("\n", " ")


def test_event_files_hold_the_figures(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    done = run("train", *SMALL, "--num_epochs", "1", "--tensorboard", "--model_save_dir", tmp_path)

    assert done.exit_code == 0, done.output
    events = accumulator.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    written = [(line["step"], pytest.approx(line["loss"])) for line in lines if "loss" in line]
    assert [(event.step, event.value) for event in events.Scalars("float/loss")] == written
    (top1,) = events.Scalars("float/evaluation/top1")
    assert top1.value == pytest.approx(lines[-1]["evaluation"]["top1"])
    assert {"float/acc_top1", "float/images_per_second"} <= set(events.Tags()["scalars"])


@pytest.mark.parametrize(("installed", "engine"), [(True, "onnxruntime"), (False, "openvino")])
def test_what_is_trained_for_an_engine_runs_on_it_if_it_is_there(tmp_path, monkeypatch, installed, engine):
    if not installed:
        monkeypatch.setattr("quaver.engines.engine.find_spec", lambda name: name if name == engine else None)

    flags = ["--float_epochs", "0", "--num_epochs", "1", "--target", "onnx"]
    done = run("quantize", *SMALL, *flags, "--model_save_dir", tmp_path)

    assert done.exit_code == 0, done.output
    assert f"int8, {engine}" in done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["engine"], report["agreement"]) == (engine, 1.0)


def test_a_run_whose_engine_computes_something_else_says_so_and_keeps_everything(tmp_path, monkeypatch):
    verify = results.verify
    wrong = ["'relu': 3 of 9 integers differ"]
    monkeypatch.setattr(results, "verify", lambda *args, **options: replace(verify(*args, **options), failures=wrong))

    done = run("quantize", *SMALL, "--float_epochs", "0", "--num_epochs", "1", "--model_save_dir", tmp_path)

    assert done.exit_code == 1
    assert re.search(r"FAILED: what runs is not what was trained\s+'relu': 3 of 9 integers differ", done.output)
    assert "Traceback" not in done.output
    assert json.loads((tmp_path / "report.json").read_text())["verify_failures"] == wrong
    assert (tmp_path / "int8" / "model.xml").exists()


def test_ranges_and_clips_start_from_an_analysis_of_the_data_or_of_a_file(tmp_path):
    flags = ["quantize", *SMALL, "--float_epochs", "0", "--num_epochs", "1", "--use_pact", "true"]
    looked = run(*flags, "--init_from", "data", "--analysis_batches", "2", "--model_save_dir", tmp_path / "a")
    read = run(*flags, "--init_from", tmp_path / "a" / "analysis.json", "--model_save_dir", tmp_path / "b")
    neither = run(*flags, "--model_save_dir", tmp_path / "c")
    lower = ["--init_from", tmp_path / "a" / "analysis.json", "--init_by", "p90"]
    clipped = run(*flags, *lower, "--model_save_dir", tmp_path / "d")

    for done in (looked, read, neither, clipped):
        assert done.exit_code == 0, done.output
    assert "looking at 2 batches" in looked.output
    assert "start from analysis.json (moving_max)" in read.output
    assert "start from analysis.json (p90)" in clipped.output
    weights = [(tmp_path / name / "int8" / "model.bin").read_bytes() for name in "abcd"]
    assert weights[0] == weights[1]
    assert len(set(weights)) == 3


def test_an_analysis_writes_figures_and_pictures_and_ends_and_pact_starts_from_it_by_itself(quantized, tmp_path):
    place, _ = quantized
    flags = ["quantize", *SMALL, "--pretrained_model", place / "one", "--num_epochs", "1", "--output_dir", tmp_path]

    looked = run(*flags, "--analysis=True", "--analysis_batches", "2")
    left = {path.name for path in tmp_path.iterdir()}
    advice = shlex.split(re.search(r"html\. quaver (quantize .*) starts from them", looked.output)[1])
    started = run(*advice, "--num_epochs", "0", "--verify_images", "0")
    found = Analysis.load(tmp_path / "analysis.json")
    (head,) = [op for op in quaver.load(tmp_path / "float").ops() if op.name == "head"]
    again = run(*flags, "--use_pact", "true")

    assert looked.exit_code == started.exit_code == again.exit_code == 0, (looked.output, started.output, again.output)
    assert left == {"analysis.json", "report.html", "run.json", "train.log"}
    assert "worst first" in looked.output
    assert "<svg" in (tmp_path / "previous" / "1" / "report.html").read_text()
    for done in (started, again):
        assert (
            "analysis.json: an analysis was made here, and ranges and clips start from it (--init_by moving_max)"
            in " ".join(done.output.split())
        )
    (found,) = [found.tensor(name) for name in found.layer("head").inputs]
    assert head.thresholds["input"] == [pytest.approx(found.moving_max)]


def test_an_analysis_is_left_alone_where_another_start_is_wanted(quantized, tmp_path):
    place, _ = quantized
    flags = ["quantize", *SMALL, "--pretrained_model", place / "one", "--output_dir", tmp_path]
    run(*flags, "--analysis", "--analysis_batches", "1")
    more = ["--num_epochs", "1", "--max_iters", "1", "--verify_images", "0"]

    without_pact = run(*flags, *more)

    assert without_pact.exit_code == 0, without_pact.output
    assert "an analysis was made here" not in without_pact.output
    assert (tmp_path / "previous" / "1" / "analysis.json").exists()


def test_an_analysis_wants_weights(tmp_path):
    done = run("quantize", "--model", "MobileNet", "--analysis", "true", "--model_save_dir", tmp_path)

    assert done.exit_code == 2
    assert "looks at a trained float model. Give its weights with --pretrained_fp32_model" in done.output


def test_a_file_that_is_no_analysis_is_an_error_that_names_it(tmp_path):
    (tmp_path / "mine.json").write_text("{}")

    done = run(
        "quantize", *SMALL, "--float_epochs", "0", "--init_from", tmp_path / "mine.json", "--model_save_dir", tmp_path
    )

    assert done.exit_code == 2
    assert "mine.json" in done.output


def test_a_target_that_calibration_meets_needs_no_training(quantized, tmp_path):
    weights = quantized[0] / "one" / "fp32.safetensors"
    flags = [
        "--pretrained_fp32_model",
        weights,
        "--target_drop",
        "100",
        "--verify_images",
        "0",
        "--model_save_dir",
        tmp_path,
    ]

    done = run("quantize", *SMALL, *flags)

    assert done.exit_code == 0, done.output
    assert "(the target is met)" in done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["way"], report["target_met"], report["target_drop"]) == ("calibrated", True, 100.0)
    assert not (tmp_path / "checkpoints").exists()


def test_a_run_that_misses_its_target_says_so_and_keeps_everything(quantized, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "points_lost", lambda *args: 3.0)
    weights = quantized[0] / "one" / "fp32.safetensors"
    flags = ["--pretrained_fp32_model", weights, "--target_drop", "2", "--num_epochs", "0", "--verify_images", "0"]

    done = run("quantize", *SMALL, *flags, "--model_save_dir", tmp_path)

    assert done.exit_code == 1
    assert "int8 loses 3.00 points on the test images, and 2 were allowed (--target_drop)." in done.output
    assert (tmp_path / "int8" / "model.xml").exists()


def test_a_target_begins_with_calibration_and_with_nothing_else(tmp_path):
    done = run("quantize", *SMALL, "--target_drop", "1", "--use_pact", "true", "--model_save_dir", tmp_path)

    assert done.exit_code == 2
    assert "target_drop=1: the shortest way begins with calibration, and use_pact with something else." in done.output


def test_a_run_leaves_files_that_take_bytes_and_verifies_them(quantized, tmp_path):
    weights = quantized[0] / "one" / "fp32.safetensors"
    flags = ["--pretrained_fp32_model", weights, "--num_epochs", "0", "--verify_images", "40", "--image_layout", "NHWC"]

    done = run("quantize", *SMALL, *flags, "--image_color", "BGR", "--model_save_dir", tmp_path)

    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["verified_images"], report["integers_equal"], report["agreement"]) == (40, 1.0, 1.0)
    for file in ("int8/model.xml", "int8/model.onnx"):
        taken = quaver.runtime.load(tmp_path / file)
        assert taken.image == quaver.ImageInput((0.5,) * 3, (0.5,) * 3, color="BGR")
    assert quaver.runtime.load(tmp_path / "fp32" / "model.xml").image is None


def test_converting_again_leaves_files_that_take_bytes(quantized, tmp_path):
    done = run("convert", quantized[0] / "one" / "float", tmp_path, "--image_layout", "NCHW")

    assert done.exit_code == 0, done.output
    assert quaver.runtime.load(tmp_path / "int8" / "model.xml").image == quaver.ImageInput(
        (0.5,) * 3, (0.5,) * 3, layout="NCHW"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--image_color", "BGR"], "image_color: says what bytes are. Give --image_layout, too."),
        (["--image_layout", "NHWC", "--target", "tensorrt"], "files for TensorRT take float tensors. Leave it out."),
    ],
)
def test_bytes_that_cannot_be_are_refused_before_training(tmp_path, flags, message):
    done = run("quantize", *SMALL, *flags, "--model_save_dir", tmp_path)

    assert done.exit_code == 2
    assert message in done.output
