import json
import os
import signal
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from children import child
from limits import AN_HOUR
from quaver.cli.main import app
from quaver.data.binary import load_binary
from quaver.data.images import read_image


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with a folder of twelve images and their list."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images" / "sub folder").mkdir(parents=True)
    noise = np.random.default_rng(0)
    for index in range(12):
        pixels = noise.integers(0, 256, (40 + index, 60 - index, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / "sub folder" / f"{index}.png")
    (tmp_path / "list.txt").write_text("".join(f"sub folder/{index}.png {index % 5}\n" for index in range(12)))
    return tmp_path


def convert(*args):
    return CliRunner().invoke(app, ["convert-data", "images", "list.txt", "out.bin", *args])


def report(name="out.json"):
    with open(name) as file:
        return json.load(file)


def drafts():
    return [name for name in os.listdir() if "draft" in name]


SMALL = ("--size", "32", "--classes", "5")


@pytest.mark.parametrize("workers", ["1", "3"])
def test_every_image_of_the_list_is_in_the_file_in_order(place, workers):
    done = convert(*SMALL, "--workers", workers)

    assert done.exit_code == 0, done.output
    data = load_binary("out.bin")
    assert data.labels.tolist() == [index % 5 for index in range(12)]
    for index, image in enumerate(data.images_nchw):
        assert np.array_equal(image, read_image(f"images/sub folder/{index}.png", 32))


def test_the_figures_are_printed_and_written_beside_the_file(place):
    done = convert(*SMALL)

    assert "12 images of 3x32x32 are in out.bin (header layout, 147.6 kB); the figures in out.json." in done.stdout
    assert report() == {
        "command": "quaver convert-data",
        "file": "out.bin",
        "layout": "header",
        "images": 12,
        "image_shape": [3, 32, 32],
        "classes": 5,
        "bytes": os.path.getsize("out.bin"),
        "listed": 12,
        "left_out": [],
    }
    assert sorted(os.listdir()) == ["images", "list.txt", "out.bin", "out.json"]


@pytest.mark.parametrize(
    ("options", "layout"),
    [
        ((), "reference"),
        (("--classes", "5"), "header"),
        (("--size", "32"), "header"),
        (("--layout", "header"), "header"),
        (("--classes", "5", "--layout", "reference"), "reference"),
    ],
)
def test_the_layout_is_the_references_where_it_fits_unless_another_is_asked_for(place, options, layout):
    done = convert(*options)

    assert done.exit_code == 0, done.output
    assert load_binary("out.bin").layout == report()["layout"] == layout


@pytest.mark.parametrize("options", [("--size", "32"), ("--classes", "1001")])
def test_the_reference_layout_is_refused_where_it_does_not_fit(place, options):
    done = convert("--layout", "reference", *options)

    assert done.exit_code == 2
    assert "Use the header layout" in done.stderr
    assert not os.path.exists("out.bin")


def break_some(place):
    (place / "images" / "sub folder" / "2.png").write_bytes(b"no image")
    whole = (place / "images" / "sub folder" / "5.png").read_bytes()
    (place / "images" / "sub folder" / "5.png").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_broken_image_is_named_with_its_line_and_the_old_file_stays(place, workers):
    convert(*SMALL)
    before = (place / "out.bin").read_bytes()
    break_some(place)

    done = convert("--size", "16", "--workers", workers)

    assert done.exit_code == 2
    assert "list.txt: line 3: images/sub folder/2.png: this is no image" in done.stderr
    assert (place / "out.bin").read_bytes() == before
    assert report()["image_shape"] == [3, 32, 32]
    assert drafts() == []


def test_missing_images_are_all_named_before_any_work(place):
    (place / "images" / "sub folder" / "3.png").unlink()
    (place / "images" / "sub folder" / "9.png").unlink()
    break_some(place)

    done = convert()

    assert done.exit_code == 2
    assert "2 images of the list not found:\n  line 4: 'sub folder/3.png'\n  line 10: 'sub folder/9.png'" in done.stderr
    assert "converting" not in done.output


@pytest.mark.parametrize("workers", ["1", "3"])
def test_skip_broken_leaves_out_and_does_not_count_what_is_broken_or_missing(place, workers):
    break_some(place)
    (place / "images" / "sub folder" / "0.png").unlink()

    done = convert(*SMALL, "--skip-broken", "--workers", workers)

    assert done.exit_code == 0, done.output
    kept = [1, 3, 4, 6, 7, 8, 9, 10, 11]
    data = load_binary("out.bin")
    assert data.labels.tolist() == [index % 5 for index in kept]
    for image, index in zip(data.images_nchw, kept, strict=True):
        assert np.array_equal(image, read_image(f"images/sub folder/{index}.png", 32))
    assert (report()["images"], report()["listed"]) == (9, 12)
    assert [(left["line"], left["path"]) for left in report()["left_out"]] == [
        (1, "sub folder/0.png"),
        (3, "sub folder/2.png"),
        (6, "sub folder/5.png"),
    ]
    assert "9 images of 3x32x32 are in out.bin" in done.stdout
    assert "Left out, and not counted, 3 images:\n  line 1: images/sub folder/0.png: there is no such image." in done.stdout


def test_with_nothing_left_there_is_no_file(place):
    (place / "list.txt").write_text("none.png 1\nlist.txt 2\n")

    done = convert("--skip-broken")

    assert done.exit_code == 2
    assert "none of its images can be read. The first: images/none.png: there is no such image." in done.stderr
    assert sorted(os.listdir()) == ["images", "list.txt"]


def test_a_left_out_file_whose_name_is_no_text_is_listed(place):
    with open("list.txt", "ab") as file:
        file.write(b"caf\xe9.png 1\n")

    done = convert(*SMALL, "--skip-broken")

    assert done.exit_code == 0, done.output
    assert r"line 13: images/caf\udce9.png" in done.stdout
    assert os.fsencode(report()["left_out"][0]["path"]) == b"caf\xe9.png"


def test_wrong_lines_are_reported_before_any_work(place):
    (place / "list.txt").write_text("1.png\nsub folder/2.png 7\nnone.png x\nsub folder/3.png 1\n")

    done = convert("--classes", "5", "--skip-broken")

    assert done.exit_code == 2
    assert "list.txt: 3 wrong lines:\n  line 1: there is no label" in done.stderr
    assert "line 2: the label 7 is outside 0..4" in done.stderr
    assert "line 3: the label is not a whole number: 'x'" in done.stderr
    assert "converting" not in done.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("none", "list.txt", "out.bin"), "none: this is not a folder"),
        (("list.txt", "images", "out.bin"), "list.txt: this is not a folder"),
        (("images", "none.txt", "out.bin"), "none.txt: the list cannot be read"),
        (("images", "list.txt", "images"), "images: this is a folder"),
        (("images", "list.txt", "out.json"), "the figures go to this name"),
        (("images", "list.txt", "./images/../list.txt"), "this is the list"),
        (("images", "list.txt", "list.txt/out.bin"), "could not be written"),
        (("images", "list.txt", "out.bin", "--size", "0"), "--size"),
        (("images", "list.txt", "out.bin", "--classes", "0"), "--classes"),
        (("images", "list.txt", "out.bin", "--workers", "-1"), "--workers"),
        (("images", "list.txt", "out.bin", "--layout", "other"), "--layout"),
        (("images", "list.txt", "out.bin", "--sise", "3"), "--size"),
        (("images", "list.txt"), "out"),
    ],
)
def test_a_wrong_call_is_a_message_and_exit_code_2(place, args, message):
    done = CliRunner().invoke(app, ["convert-data", *args])

    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert sorted(os.listdir()) == ["images", "list.txt"]


@pytest.mark.parametrize("content", ["{}", "[1, 2]", "words", '{"command": "another"}'])
def test_a_json_file_of_someone_else_is_not_replaced(place, content):
    (place / "out.json").write_text(content)

    done = convert()

    assert done.exit_code == 2
    assert "out.json: the figures would replace this file" in done.stderr
    assert (place / "out.json").read_text() == content
    assert not os.path.exists("out.bin")


def test_its_own_figures_are_replaced(place):
    convert(*SMALL)

    done = convert("--size", "16", "--classes", "5")

    assert done.exit_code == 0, done.output
    assert report()["image_shape"] == [3, 16, 16] == [*load_binary("out.bin").image_shape]


# cut short: a list so long that it cannot be done before the signal


@contextmanager
def started(place):
    """A conversion of very many images, as a user starts it, when its draft has begun to grow."""
    (place / "list.txt").write_text("sub folder/1.png 1\n" * 200_000)
    command = [sys.executable, "-m", "quaver", "convert-data", "images", "list.txt", "out.bin", "--workers", "2"]
    with child(command, cwd=place) as conversion:
        until = time.monotonic() + AN_HOUR
        while not os.path.exists(".out.bin.draft") or os.path.getsize(".out.bin.draft") < 5_000_000:
            assert time.monotonic() < until
            assert conversion.poll() is None
            time.sleep(0.02)
        yield conversion


@pytest.mark.slow
def test_ctrl_c_leaves_the_old_file_and_no_draft(place):
    convert(*SMALL)
    before = (place / "out.bin").read_bytes()

    with started(place) as conversion:
        conversion.send_signal(signal.SIGINT)
        _, errors = conversion.communicate(timeout=AN_HOUR)

    assert conversion.returncode == 130
    assert errors.strip() == "stopped."
    assert drafts() == []
    assert (place / "out.bin").read_bytes() == before
    assert report()["images"] == 12


@pytest.mark.slow
def test_kill_9_leaves_the_old_file_and_the_next_run_the_new_one_and_no_draft(place):
    convert(*SMALL)
    before, full_list = (place / "out.bin").read_bytes(), (place / "list.txt").read_text()

    with started(place) as conversion:
        conversion.kill()
        conversion.communicate(timeout=AN_HOUR)

    assert conversion.returncode == -signal.SIGKILL
    assert (place / "out.bin").read_bytes() == before
    (place / "list.txt").write_text(full_list)
    assert convert("--size", "16", "--classes", "5").exit_code == 0
    assert load_binary("out.bin").image_shape == (3, 16, 16)
    assert drafts() == []
