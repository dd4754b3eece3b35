import json
import os
import signal
import subprocess
import sys
import time

import pytest

import quaver
from children import child
from limits import AN_HOUR
from quaver.data import Loader, open_dataset
from quaver.training.classification import Classification

pytestmark = pytest.mark.slow


def run(*args, cwd, **options):
    command = [sys.executable, "-m", "quaver", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=AN_HOUR, **options)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    done = run("demo", "--out", "out", "--epochs", "1", "--qat-epochs", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_the_demo_writes_a_report_with_the_figures(demo):
    folder, done = demo

    report = json.loads((folder / "out" / "report.json").read_text())

    assert {"fp32_top1", "qat_top1", "int8_top1", "fp32_bytes", "int8_bytes"} <= report.keys()
    assert report["qat_top1"] == report["int8_top1"] == report["frozen_top1"]
    assert report["int8_bytes"] <= 0.3 * report["fp32_bytes"]
    assert f"{report['int8_top1']:.2%}" in done.stdout


def test_the_programs_of_the_demo_can_be_read_and_give_its_figures(demo):
    folder, _ = demo
    test = Loader(open_dataset("digits", "val"), 100, shuffle=False)
    report = json.loads((folder / "out" / "report.json").read_text())

    int8, frozen = quaver.load(folder / "out" / "int8"), quaver.load(folder / "out" / "float")

    assert [Classification().evaluate(program, test)["top1"] for program in (int8, frozen)] == [report["int8_top1"]] * 2


def test_the_demo_writes_a_page_that_misses_nothing(demo):
    folder, done = demo

    text = (folder / "out" / "report.html").read_text()

    assert all(f'id="{part}"' in text for part in ("figures", "training", "layers", "network", "activations", "provenance"))
    assert 'id="missing"' not in text
    assert "report.html" in done.stdout


def test_nothing_is_left_in_the_working_directory(demo):
    folder, _ = demo

    assert os.listdir(folder) == ["out"]


def test_an_output_that_is_a_file_is_one_message_and_exit_code_2(tmp_path):
    (tmp_path / "taken").write_text("mine")

    done = run("demo", "--out", "taken", cwd=tmp_path)

    assert done.returncode == 2
    assert "--out taken: this is a file" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "taken").read_text() == "mine"


def test_an_unknown_flag_is_one_message_and_exit_code_2(tmp_path):
    done = run("demo", "--epoch", "1", cwd=tmp_path)

    assert done.returncode == 2
    assert "--epoch" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_leaves_no_files(tmp_path):
    place, scratch = tmp_path / "place", tmp_path / "scratch"
    place.mkdir(), scratch.mkdir()
    command = [sys.executable, "-m", "quaver", "demo", "--out", "out", "--epochs", "500"]

    with child(command, cwd=place, env=os.environ | {"TMPDIR": str(scratch)}) as demo:
        until = time.monotonic() + AN_HOUR
        while not list(scratch.rglob("metrics.jsonl")):  # it trains
            assert time.monotonic() < until
            assert demo.poll() is None, demo.stderr.read()
            time.sleep(0.05)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=AN_HOUR)

    assert demo.returncode == 130
    assert "stopped." in errors
    assert "Traceback" not in errors
    assert os.listdir(place) == os.listdir(scratch) == []
