"""Whenever an export is cut short, its place holds one artefact whole: the old or the new; and leftovers are swept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quaver
from quaver.errors import StorageError
from quaver.runtime.artefact import find
from quaver.runtime.publishing import INCOMING, draft_in, publish

pytestmark = pytest.mark.slow

SOURCE = Path(quaver.__file__).parent.parent
NAMES = ("model.bin", "model.onnx", "model.onnx.json", "model.xml", "model.xml.json")


def fill(draft, content, names=NAMES):
    """Two artefacts in a draft, as an export for two engines writes them."""
    for name in names:
        part = draft / ("1" if "onnx" in name else "0")
        part.mkdir(exist_ok=True)
        (part / name).write_text(content)


def put(folder, content, names=NAMES):
    with draft_in(folder) as draft:
        fill(draft, content, names)
        publish(draft)


def held(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    """A folder with an old artefact, and files of the user's."""
    place = tmp_path / "out"
    put(place, "old")
    (place / "notes.txt").write_text("mine")
    (place / ".model.xml.hidden").mkdir()
    (place / ".quaver-draft-mine").mkdir()
    return place


MINE = {"notes.txt": "mine"}
THERE = {".model.xml.hidden", ".quaver-draft-mine", "notes.txt", *NAMES}


def test_all_files_take_their_places_and_nothing_else_is_touched(folder):
    put(folder, "new")

    assert held(folder) == dict.fromkeys(NAMES, "new") | MINE
    assert set(os.listdir(folder)) == THERE


def test_an_error_leaves_what_was_there(folder):
    with pytest.raises(NotADirectoryError), draft_in(folder) as draft:
        fill(draft, "new", [*NAMES, "model.bin/x"])

    assert held(folder) == dict.fromkeys(NAMES, "old") | MINE
    assert set(os.listdir(folder)) == THERE


KILLING = """
import json, os, pathlib, sys
import test_publishing as t
from children import killed_at
from quaver.runtime.artefact import find

folder = pathlib.Path(sys.argv[1])
found = {}
for owner, name in [(os, "mkdir"), (os, "fsync"), (os, "replace"), (os, "unlink"), (os, "rmdir"), (t, "fill")]:
    nth = 1
    while True:
        t.put(folder, "old")
        if not killed_at(owner, name, nth, lambda: t.put(folder, "new")):
            break
        find(folder / "model.xml")  # as one who reads does
        found[f"{name} {nth}"] = sorted(set(t.held(folder).items()) - {("notes.txt", "mine")})
        nth += 1
print(json.dumps([found, sorted(os.listdir(folder))]))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What was found in the folder after exports that were killed at every step."""
    place = tmp_path_factory.mktemp("killed") / "out"
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SOURCE, here, here.parent)))}
    command = [sys.executable, "-c", KILLING, str(place)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def test_a_kill_at_any_step_leaves_the_old_or_the_new_whole(killed):
    found, _ = killed

    whole = [[[name, content] for name in NAMES] for content in ("old", "new")]
    assert [step for step, files in found.items() if files not in whole] == []
    contents = [files[0][1] for files in found.values()]
    assert min(contents.count("old"), contents.count("new")) >= 5


def test_a_kill_before_the_rename_that_counts_leaves_the_old_and_after_it_the_new(killed):
    found, _ = killed

    steps = [files[0][1] for step, files in found.items() if step.startswith("replace")]
    assert steps == ["old"] + ["new"] * len(NAMES)


def test_the_next_export_sweeps_what_the_killed_ones_left(killed):
    _, left = killed

    assert left == sorted(NAMES)


def test_the_draft_of_one_at_work_is_not_swept(folder):
    with draft_in(folder) as draft:
        fill(draft, "slow")
        put(folder, "fast")

        assert held(folder) == dict.fromkeys(NAMES, "fast") | MINE
        publish(draft)

    assert held(folder) == dict.fromkeys(NAMES, "slow") | MINE
    assert set(os.listdir(folder)) == THERE


def test_what_lies_where_incoming_files_lie_and_is_no_artefact_is_not_brought_anywhere(folder, tmp_path):
    (folder / INCOMING / "0").mkdir(parents=True)
    for name in (".bashrc", "notes.txt", "program.json"):
        (folder / INCOMING / "0" / name).write_text("evil")
    (tmp_path / "secret").write_text("secret")
    (folder / INCOMING / "0" / "model.xml").symlink_to(tmp_path / "secret")

    find(folder / "model.xml")

    assert held(folder) == dict.fromkeys(NAMES, "old") | MINE


def test_a_link_stays_and_what_it_points_to_is_replaced(folder, tmp_path):
    for name in ("model.xml", "model.bin"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)

    put(folder, "new")

    assert (folder / "model.xml").is_symlink()
    assert held(folder) == dict.fromkeys(NAMES, "new") | MINE
    assert (tmp_path / "model.bin").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["model.bin", "model.xml", "out"]


@pytest.mark.parametrize("name", ["model.xml", "model.bin", "model.xml.json"])
@pytest.mark.parametrize("kind", ["mkdir", "mkfifo"])
def test_a_folder_or_a_pipe_in_the_way_is_refused_before_anything_is_put_in_place(folder, name, kind):
    (folder / name).unlink()
    getattr(os, kind)(folder / name)
    before = held(folder)

    with pytest.raises(StorageError, match=rf"{name}: this is a folder or a device"):
        put(folder, "new")

    assert held(folder) == before
    assert set(os.listdir(folder)) == THERE


def test_an_artefact_that_cannot_be_brought_to_its_place_is_an_error_that_says_so(folder, monkeypatch):
    works, calls = os.replace, []

    def failing(*args):
        calls.append(args)
        if len(calls) == 3:
            raise OSError(5, "Input/output error")
        works(*args)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(StorageError, match=r"an export was cut off here, and cannot be brought to its end: .*Input/output"):
        put(folder, "new")
    monkeypatch.undo()

    find(folder / "model.onnx")
    assert held(folder) == dict.fromkeys(NAMES, "new") | MINE
