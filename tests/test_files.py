"""A draft takes the place of a file in one step, or not at all."""

import errno
import os
import pathlib
import signal
import sys

import pytest

from children import forked
from quaver.files import Draft, draft_of, write_atomically

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


def killed_in(block):
    """The signal that ended a child which entered a block, wrote, and killed itself there."""

    def work():
        with block as file:
            if not isinstance(file, pathlib.Path):
                file.write(bytes(100_000))
                file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    return os.WTERMSIG(os.waitpid(forked(work), 0)[1])


def test_a_killed_writer_leaves_what_was_there_and_the_next_one_takes_over_its_draft(path):
    assert killed_in(Draft(path)) == signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(os.listdir(path.parent)) == 2

    with Draft(path) as file:
        file.write(b"new")

    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == [PLACE]


# whole contents, links, devices


def test_a_whole_content_takes_its_place_and_leaves_no_draft(path):
    write_atomically(path, b"new")

    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == [PLACE]


def test_the_draft_of_a_killed_writer_is_removed_by_the_next_and_one_at_work_is_not(path):
    assert killed_in(draft_of(path, b"x")) == signal.SIGKILL
    (left,) = set(os.listdir(path.parent)) - {PLACE}

    with draft_of(path, b"slow") as at_work:
        assert not (path.parent / left).exists()
        write_atomically(path, b"fast")
        assert at_work.read_bytes() == b"slow"

    assert path.read_bytes() == b"fast"
    assert os.listdir(path.parent) == [PLACE]


@pytest.mark.parametrize("write", ["whole", "piece by piece"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_points_to_is_replaced_in_one_step(path, tmp_path, write, there):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    link.symlink_to("elsewhere/target")
    if there:
        target.write_bytes(b"old")
        os.link(target, tmp_path / "same")

    if write == "whole":
        write_atomically(link, b"new")
    else:
        with Draft(link) as file:
            file.write(b"new")

    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert not there or (tmp_path / "same").read_bytes() == b"old"  # replaced, not written into
    assert os.listdir(tmp_path / "elsewhere") == ["target"]


def test_a_link_that_points_to_itself_is_an_error(tmp_path):
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(OSError, match="symbolic links"):
        write_atomically(tmp_path / "loop", b"new")

    assert os.listdir(tmp_path) == ["loop"]


def test_a_device_is_written_into_and_stays(tmp_path):
    before = os.stat("/dev/null")
    (tmp_path / "link").symlink_to("/dev/null")

    for path in (pathlib.Path("/dev/null"), tmp_path / "link"):
        write_atomically(path, b"new")

    assert (os.stat("/dev/null").st_rdev, os.stat("/dev/null").st_mode) == (before.st_rdev, before.st_mode)


def test_a_pipe_is_written_into(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    write_atomically(tmp_path / "pipe", b"new")

    assert os.read(reading, 10) == b"new"
    os.close(reading)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("into", ["pipe", "file"])
def test_standard_output_is_written_into_between_what_is_printed(tmp_path, name, into):
    reading, writing = os.pipe() if into == "pipe" else (os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT), None)

    def work():
        os.dup2(reading if writing is None else writing, 1)
        sys.stdout = os.fdopen(1, "w")
        print("before")
        write_atomically(pathlib.Path(name), b"content\n")
        print("after", flush=True)

    os.waitpid(forked(work), 0)

    if writing is None:
        os.lseek(reading, 0, os.SEEK_SET)
    assert os.read(reading, 100) == b"before\ncontent\nafter\n"
    for handle in {reading, writing} - {None}:
        os.close(handle)
