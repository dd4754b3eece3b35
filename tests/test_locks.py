"""A lock on a folder keeps others out for as long as it is held, and no longer."""

import os
import signal

import pytest

from children import forked
from quaver.locks import folder_lock, try_lock


def is_free(folder):
    handle = os.open(folder, os.O_RDONLY)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)


@pytest.mark.parametrize("shared", [True, False])
def test_a_folder_is_held_till_the_block_ends(tmp_path, shared):
    with folder_lock(tmp_path, shared=shared) as locked:
        assert locked
        assert not is_free(tmp_path)

    assert is_free(tmp_path)


def test_several_hold_it_shared(tmp_path):
    with folder_lock(tmp_path, shared=True), folder_lock(tmp_path, shared=True) as second:
        assert second


def test_a_child_that_was_forked_meanwhile_does_not_hold_it_on(tmp_path):
    with folder_lock(tmp_path):
        child = forked(signal.pause)

    free = is_free(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert free


def test_a_folder_that_is_not_there_is_not_locked(tmp_path):
    with folder_lock(tmp_path / "none") as locked:
        assert not locked
