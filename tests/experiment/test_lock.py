"""Two processes never work on one run, and a dead one keeps nobody off."""

import json
import os
import platform
import signal
import subprocess

import pytest
from typer.testing import CliRunner

import quaver
from children import forked
from quaver.cli.main import app
from quaver.errors import ConfigError, StorageError
from quaver.experiment.lock import NAME, RunLock, at_work
from quaver.report import gather


def killed_with_the_lock(folder, before=lambda: None):
    """The signal that ended a child which took the lock of a folder, did something, and killed itself."""

    def work():
        RunLock().__enter__().take(folder)
        before()
        os.kill(os.getpid(), signal.SIGKILL)

    return os.WTERMSIG(os.waitpid(forked(work), 0)[1])


def test_a_second_one_is_refused_with_the_first_ones_process_and_host(tmp_path):
    with RunLock() as first, RunLock() as second:
        first.take(tmp_path)
        first.take(tmp_path)  # once more is no matter

        with pytest.raises(ConfigError, match=rf"process {os.getpid()} on {platform.node()} is at work on this run"):
            second.take(tmp_path)
        assert at_work(tmp_path) == f"process {os.getpid()} on {platform.node()}"


def test_when_the_first_ends_nothing_is_left_and_the_second_goes_on(tmp_path):
    with RunLock() as first:
        first.take(tmp_path / "new")

    assert os.listdir(tmp_path / "new") == []
    assert at_work(tmp_path / "new") == ""
    with RunLock() as second:
        second.take(tmp_path / "new")


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    assert killed_with_the_lock(tmp_path) == signal.SIGKILL
    assert (tmp_path / NAME).exists()
    assert at_work(tmp_path) == ""

    with RunLock() as lock:
        lock.take(tmp_path)

        assert at_work(tmp_path).startswith(f"process {os.getpid()} ")


@pytest.mark.slow
def test_a_worker_that_outlives_its_process_does_not_hold_the_lock(tmp_path):
    reading, writing = os.pipe()
    ended = killed_with_the_lock(tmp_path, lambda: os.write(writing, str(forked(signal.pause)).encode()))
    worker = int(os.read(reading, 20))
    os.close(reading)
    os.close(writing)

    try:
        with RunLock() as lock:
            lock.take(tmp_path)
    finally:
        os.kill(worker, signal.SIGKILL)  # it was there all the while

    assert ended == signal.SIGKILL


@pytest.mark.parametrize("content", ["", "{", "[]", '{"process": "1", "host": 2}', "\x00" * 2000])
def test_a_lock_that_says_nothing_is_taken_over(tmp_path, content):
    (tmp_path / NAME).write_text(content)

    with RunLock() as lock:
        lock.take(tmp_path)

        assert json.loads((tmp_path / NAME).read_text())["process"] == os.getpid()


def test_a_lock_of_another_machine_is_not_taken_over_and_the_way_out_is_said(tmp_path):
    content = '{"process": 7, "host": "elsewhere", "boot": "another"}'
    (tmp_path / NAME).write_text(content)

    with RunLock() as lock, pytest.raises(ConfigError, match=rf"process 7 on elsewhere may be at work.* remove .*{NAME}"):
        lock.take(tmp_path)

    assert (tmp_path / NAME).read_text() == content


def test_a_link_in_place_of_a_lock_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / NAME).symlink_to("precious")

    with RunLock() as lock, pytest.raises(StorageError, match="cannot be written to"):
        lock.take(tmp_path)

    assert (tmp_path / "precious").read_text() == "mine"


def test_where_the_file_system_has_no_locks_a_process_that_lives_is_seen_and_one_that_does_not_is_not(tmp_path, monkeypatch):
    def refuse(*_args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(quaver.locks.fcntl, "flock", refuse)
    ended = subprocess.Popen(["true"])
    ended.wait()

    with RunLock() as first, RunLock() as second:
        first.take(tmp_path)
        with pytest.raises(ConfigError, match="is at work"):
            second.take(tmp_path)
    (tmp_path / NAME).write_text(json.dumps({"process": ended.pid, "host": platform.node()}))
    with RunLock() as third:
        third.take(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["quantize", "train"])
@pytest.mark.parametrize("more", [[], ["--checkpoint"]])
def test_a_command_on_a_run_at_work_is_refused_and_touches_nothing(tmp_path, command, more):
    (tmp_path / "report.json").write_text("{}")
    words = [command, "--model_save_dir", str(tmp_path), *(word for flag in more for word in (flag, str(tmp_path)))]

    with RunLock() as lock:
        lock.take(tmp_path)
        before = sorted(os.listdir(tmp_path))
        done = CliRunner().invoke(app, words)

        assert sorted(os.listdir(tmp_path)) == before
    assert done.exit_code == 2
    assert f"process {os.getpid()} on {platform.node()} is at work on this run" in done.stderr


def test_a_report_does_not_take_a_run_at_work_for_one_that_has_ended(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"phase": "float", "epoch": 0, "step": 1, "loss": 1.0}\n')

    with RunLock() as lock:
        lock.take(tmp_path)
        missing = dict(gather(tmp_path).missing)
        (tmp_path / "metrics.jsonl").unlink()
        with pytest.raises(StorageError, match=rf"process {os.getpid()} on .* is at work on this run, and has nothing"):
            gather(tmp_path)

    assert missing["Accuracy and size"].endswith(f"process {os.getpid()} on {platform.node()} is at work on it")
