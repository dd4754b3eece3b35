"""Whenever a save is cut short, the folder holds a whole program: the old or the new."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import quaver
from quaver.errors import StorageError

pytestmark = pytest.mark.slow

TESTS, SOURCE = Path(__file__).parent.parent, Path(quaver.__file__).parent.parent


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def full_disk(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def full_half_way(path, mode):
    """A file that takes half of what is written into it, then the disk is full."""
    file = io.FileIO(path, mode.replace("b", ""))
    if "r" in mode:
        return file
    works = file.write
    file.write = lambda content: (works(content[: len(content) // 2]), full_disk())
    return file


@pytest.fixture
def folder(stages, tmp_path) -> Path:
    """A folder with the float program in it."""
    return quaver.save(stages["float"], tmp_path / "program")


def fail_at(monkeypatch, call: str, nth: int) -> None:
    """Let the ``nth`` call of a function that writes fail; those before it work."""
    owner, name = call.rsplit(".", 1)
    owner = {"os": os, "Path": Path}[owner]
    works, calls = getattr(owner, name), []

    def function(*args, **kwargs):
        calls.append(args)
        return full_disk() if len(calls) == nth else works(*args, **kwargs)

    monkeypatch.setattr(owner, name, function)


CALLS = [("os.replace", 1), ("os.replace", 2), ("os.fsync", 1), ("os.fsync", 2), ("os.fsync", 3), ("Path.mkdir", 1)]


@pytest.mark.parametrize(("call", "nth"), CALLS)
def test_a_full_disk_is_a_storage_error_and_the_old_program_is_intact(folder, stages, monkeypatch, call, nth):
    before = files(folder)
    fail_at(monkeypatch, call, nth)

    with pytest.raises(StorageError, match=r"could not be written: .*No space left.*untouched"):
        quaver.save(stages["int8"], folder)

    assert files(folder) == before
    assert quaver.load(folder).stage is quaver.Stage.FLOAT


def test_a_disk_that_does_not_confirm_the_last_step_is_an_error_that_says_so(folder, stages, monkeypatch):
    before = files(folder)
    fail_at(monkeypatch, "os.fsync", 4)

    with pytest.raises(StorageError, match=r"was written, but the disk did not confirm it: .*No space left"):
        quaver.save(stages["int8"], folder)

    assert quaver.load(folder).stage is quaver.Stage.INT8
    assert before.keys() - {"program.json"} <= files(folder).keys()  # a crash may bring back what names them


def test_a_write_that_ends_half_way_is_a_storage_error_and_the_old_program_is_intact(folder, stages, monkeypatch):
    before = files(folder)
    monkeypatch.setattr("quaver.files.open", full_half_way, raising=False)

    with pytest.raises(StorageError, match=r"could not be written: .*No space left"):
        quaver.save(stages["int8"], folder)

    assert files(folder) == before


def test_a_save_after_a_failed_one_leaves_nothing_else(folder, stages, monkeypatch):
    fail_at(monkeypatch, "os.replace", 2)
    with pytest.raises(StorageError):
        quaver.save(stages["int8"], folder)

    quaver.save(stages["frozen"], folder)

    assert len(files(folder)) == 2
    assert quaver.load(folder).stage is quaver.Stage.FROZEN


def test_the_words_are_true_when_only_the_old_weights_could_not_be_removed(folder, stages, monkeypatch):
    def refuse(path, missing_ok=False):
        raise PermissionError(errno.EPERM, "not allowed")

    works = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **kw: works(path, **kw) if "draft" in path.name else refuse(path))

    try:
        quaver.save(stages["int8"], folder)
        words = ""
    except StorageError as error:
        words = str(error)

    untouched = quaver.load(folder).stage is quaver.Stage.FLOAT
    assert ("What was there is untouched" in words) is untouched


def test_a_file_where_the_folder_should_be_is_a_storage_error(program, tmp_path):
    (tmp_path / "file").write_text("mine")

    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="could not be written"):
            quaver.save(program, folder)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_a_storage_error(program, tmp_path):
    tmp_path.chmod(0o500)

    with pytest.raises(StorageError, match=r"could not be written: .*Permission denied"):
        quaver.save(program, tmp_path / "program")

    tmp_path.chmod(0o700)


# kill -9: one process that forks children, so that torch is imported once

KILLING = """
import json, os, random, signal, sys, time
import torch, quaver
from children import forked, killed_at

torch.set_num_threads(1)
random.seed(3)
folder, *sources = sys.argv[1:]
programs = [quaver.load(source) for source in sources]
quaver.save(programs[0], folder)


def save_for_ever():
    while True:
        for program in programs:
            quaver.save(program, folder)


def found():
    program = quaver.load(folder)
    state = program.state_dict()
    for index, one in enumerate(programs):
        known = one.state_dict()
        if program.stage is one.stage and state.keys() == known.keys():
            if all(torch.equal(state[name], known[name]) for name in known):
                return index
    return "neither"


report = {"random": [], "steps": {}}
for _ in range(20):
    child = forked(save_for_ever)
    time.sleep(random.uniform(0.0, 0.08))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    report["random"].append([os.WTERMSIG(status), found()])
for call, nth in [(call, nth) for call in ("replace", "fsync") for nth in (4, 3, 2, 1)]:
    quaver.save(programs[0], folder)
    number = killed_at(os, call, nth, lambda: quaver.save(programs[1], folder))
    report["steps"][f"{call} {nth}"] = [number, found()]
quaver.save(programs[0], folder)
report["left"] = sorted(os.listdir(folder))
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def killed(stages, tmp_path_factory) -> dict:
    """What was found in the folder after saves that were killed: at random moments, and at every step."""
    place = tmp_path_factory.mktemp("killed")
    sources = [quaver.save(stages[stage], place / stage) for stage in ("trained", "int8")]
    command = [sys.executable, "-c", KILLING, str(place / "folder"), *map(str, sources)]
    environment = os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}"}
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def test_a_kill_at_any_moment_leaves_one_of_the_two_programs_whole(killed):
    assert len(killed["random"]) == 20
    assert all(signal == 9 and index in (0, 1) for signal, index in killed["random"])


def test_a_kill_before_the_json_is_replaced_leaves_the_old_program_and_after_it_the_new(killed):
    steps = {step: index for step, (signal, index) in killed["steps"].items() if signal == 9}

    # each file has a name only when it is on disk, and the JSON only when the weights have theirs
    assert steps == {"fsync 1": 0, "fsync 2": 0, "fsync 3": 0, "fsync 4": 1, "replace 1": 0, "replace 2": 0}


def test_a_save_after_kills_leaves_nothing_else(killed):
    assert sorted(name.split("-")[0] for name in killed["left"]) == ["program.json", "weights"]


def test_a_save_is_on_disk_before_it_is_named(stages, tmp_path, monkeypatch):
    events = []
    for name in ("fsync", "replace"):
        works = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, works=works: (events.append(name), works(*args))[1])

    quaver.save(stages["float"], tmp_path)

    # the index, which does not have its name yet; the weights, their name; the index's name
    assert events == ["fsync", "fsync", "replace", "fsync", "replace", "fsync"]


def test_the_old_program_loads_while_a_new_one_is_written(folder, stages, images, monkeypatch):
    works, seen = os.replace, []

    def replace(*args):
        seen.append(torch.equal(quaver.load(folder).eval()(images), stages["float"].clone(for_test=True)(images)))
        works(*args)

    monkeypatch.setattr(os, "replace", replace)

    quaver.save(stages["int8"], folder)

    assert seen == [True, True]
