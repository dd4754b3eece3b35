"""Several who save into one folder at once leave one of their programs; nothing that is not ours is removed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import quaver
from quaver import locks, stores
from quaver.errors import StorageError

pytestmark = pytest.mark.slow

ROOT, SOURCE = Path(__file__).parent.parent.parent, Path(quaver.__file__).parent.parent


@pytest.fixture
def folder(stages, tmp_path) -> Path:
    """A folder with the float program in it."""
    return quaver.save(stages["float"], tmp_path / "program")


def are_equal(one, other) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_two_savers_and_a_reader_never_meet_anything_but_whole_programs(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "saves_at_once.py", "--rounds", "8", "--json", tmp_path / "found.json"]

    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [(row["rounds"], row["saves"], row["loads"]) for row in rows] == [(8, 48, 72)] * 2


def test_a_reader_whose_weights_were_just_replaced_reads_the_new_program(folder, stages, monkeypatch):
    works = stores.read_bytes

    def late(path, most):
        monkeypatch.setattr(stores, "read_bytes", works)
        quaver.save(stages["int8"], folder)
        return works(path, most)

    monkeypatch.setattr(stores, "read_bytes", late)

    assert are_equal(quaver.load(folder), stages["int8"])


FOREIGN = ("weights-mine.safetensors", "weights-0123456789abcdef.safetensors", ".weights-x.safetensors.draft", "notes.json")


def test_files_of_others_stay(folder, stages):
    for name in FOREIGN:
        (folder / name).write_text("mine")

    for stage in ("int8", "frozen"):
        quaver.save(stages[stage], folder)

    assert [(folder / name).read_text() for name in FOREIGN] == ["mine"] * len(FOREIGN)
    assert len(os.listdir(folder)) == len(FOREIGN) + 2


@pytest.mark.parametrize("name", ["thesis.tex", "../thesis.tex", "weights-mine.safetensors"])
def test_a_file_that_only_a_forged_index_names_as_weights_stays(folder, stages, name):
    (folder / name).write_text("mine")
    body = quaver.program.storage.FORMAT.unsealed(folder / "program.json")
    (folder / "program.json").write_bytes(quaver.program.storage.FORMAT.sealed(body | {"weights": name}))

    quaver.save(stages["int8"], folder)

    assert (folder / name).read_text() == "mine"


def test_weights_that_another_index_names_stay(folder, stages):
    (folder / "before.json").write_bytes((folder / "program.json").read_bytes())

    quaver.save(stages["int8"], folder)

    (folder / "before.json").rename(folder / "program.json")
    assert are_equal(quaver.load(folder), stages["float"])


def test_where_the_file_system_has_no_locks_nothing_is_removed_and_everything_else_is_the_same(
    folder, stages, monkeypatch, tmp_path
):
    def refuse(*_args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)

    quaver.save(stages["int8"], folder)

    assert are_equal(quaver.load(folder), stages["int8"])
    assert len(list(folder.glob("weights-*"))) == 2
    assert len(os.listdir(folder)) == 3


# links, devices


def test_a_link_in_place_of_the_index_stays_and_what_it_points_to_is_replaced(folder, stages, tmp_path):
    (folder / "program.json").rename(tmp_path / "elsewhere.json")
    (folder / "program.json").symlink_to(tmp_path / "elsewhere.json")

    quaver.save(stages["int8"], folder)

    assert (folder / "program.json").is_symlink()
    assert are_equal(quaver.load(folder), stages["int8"])
    assert sorted(os.listdir(tmp_path)) == ["elsewhere.json", "program"]


def test_a_pipe_in_place_of_the_weights_is_refused_and_not_waited_for(folder):
    (weights,) = folder.glob("weights-*")
    weights.unlink()
    os.mkfifo(weights)

    with pytest.raises(StorageError, match=r"weights file cannot be read: .* a pipe or a device, not a file: .*weights-"):
        quaver.load(folder)
