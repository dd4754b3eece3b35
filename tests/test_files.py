"""A draft takes the place of a file in one step, or not at all."""

import errno
import os
import signal
import subprocess
import sys

import pytest

import quaver.files
from quaver.files import Draft

PLACE = "file.bin"


@pytest.fixture
def path(tmp_path):
    (tmp_path / PLACE).write_bytes(b"old")
    return tmp_path / PLACE


def test_what_was_there_stays_until_the_block_ends(path):
    with Draft(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"

    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == [PLACE]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_in_the_block_leaves_what_was_there_and_no_draft(path, error):
    def write_half():
        with Draft(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write_half()

    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [PLACE]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_at_the_end_leaves_what_was_there_and_no_draft(path, monkeypatch, call):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)

    with pytest.raises(OSError, match="No space left"), Draft(path) as file:
        file.write(b"new")

    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [PLACE]


def test_the_file_is_on_disk_before_it_is_named(path, monkeypatch):
    events = []
    for name in ("fsync", "replace"):
        works = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, works=works: (events.append(name), works(*args))[1])

    with Draft(path) as file:
        file.write(b"new")

    assert events == ["fsync", "replace", "fsync"]


def test_a_second_writer_is_refused_and_the_first_one_ends_well(path):
    with Draft(path) as file:
        file.write(b"first")
        with pytest.raises(BlockingIOError), Draft(path):
            pass
        file.write(b" and whole")

    assert path.read_bytes() == b"first and whole"
    assert os.listdir(path.parent) == [PLACE]


def test_a_writer_that_opens_the_draft_just_before_it_is_renamed_is_refused(path, monkeypatch):
    first, second, works = Draft(path), Draft(path), os.open
    first.__enter__().write(b"first")

    def slow(*args, **kwargs):
        handle = works(*args, **kwargs)
        monkeypatch.setattr(os, "open", works)
        first.__exit__(None, None, None)
        return handle

    monkeypatch.setattr(os, "open", slow)

    with pytest.raises(BlockingIOError):
        second.__enter__()
    assert path.read_bytes() == b"first"


DYING = """
import os, pathlib, runpy, signal, sys

draft = runpy.run_path(sys.argv[1])["Draft"](pathlib.Path(sys.argv[2]))
with draft as file:
    file.write(bytes(100_000))
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_what_was_there_and_the_next_one_takes_over_its_draft(path):
    done = subprocess.run([sys.executable, "-c", DYING, quaver.files.__file__, str(path)])
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(os.listdir(path.parent)) == 2

    with Draft(path) as file:
        file.write(b"new")

    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == [PLACE]
