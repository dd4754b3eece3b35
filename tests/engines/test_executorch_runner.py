"""Skipped where executorch is not installed (``pip install 'quaver[executorch]'``)."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from mobiles import mobile_program
from needs import need_executorch
from quaver.engines.executorch import runner
from quaver.engines.executorch.writer import serialized
from quaver.errors import EngineError, InputError, StorageError
from quaver.runtime import Input, load, seal

need_executorch()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    return mobile_program(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 5)), (8, 3, 8, 8))


@pytest.fixture(scope="module")
def file(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("mobile") / "model.pte"
    path.write_bytes(serialized(program))
    return path


@pytest.fixture
def batch():
    return np.random.default_rng(0).normal(size=(5, 3, 8, 8)).astype(np.float32)


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return x + y.mean((1, 2, 3), keepdim=True), y.relu()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A float model with two inputs and two outputs."""
    path = tmp_path_factory.mktemp("two") / "model.pte"
    model = quaver.capture(TwoInputs(), (torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 2, 2)))
    path.write_bytes(serialized(model))
    return load(path)


def test_a_batch_of_any_size_is_run(file, batch):
    run = load(file)

    whole = run(batch)

    assert whole.shape == (5, 5)
    assert np.array_equal(whole[3:4], run(batch[3:4]))
    assert np.array_equal(whole[:2], run(batch[:2]))
    assert whole.std() > 0


def test_an_empty_batch_gives_an_empty_result(file, batch):
    result = load(file)(batch[:0])

    assert (result.shape, result.dtype) == ((0, 5), np.float32)


def test_it_says_its_engine_and_its_inputs(file):
    run = load(file)

    assert run.engine == "executorch"
    assert run.inputs == [Input("input", (None, 3, 8, 8), np.dtype("float32"))]


def test_several_inputs_and_outputs(two):
    x, y = np.ones((3, 3, 4, 4), np.float32), np.arange(12, dtype=np.float32).reshape(3, 1, 2, 2) - 4

    first, second = two(x, y)

    np.testing.assert_allclose(first[:, 0, 0, 0], 1 + y.mean((1, 2, 3)))
    assert np.array_equal(second, np.maximum(y, 0))


def test_inputs_with_batches_of_different_sizes_are_refused(two):
    with pytest.raises(InputError, match="batches of different sizes: 2, 3"):
        two(np.ones((3, 3, 4, 4), np.float32), np.ones((2, 1, 2, 2), np.float32))


def test_an_input_of_another_shape_is_refused(file, batch):
    with pytest.raises(InputError, match=r"'input': shape \(5, 3, 4, 8\) does not fit"):
        load(file)(batch[:, :, :4])


def test_an_array_that_may_not_be_written_to_is_run(file, batch):
    run, expected = load(file), load(file)(batch)
    batch.flags.writeable = False

    assert np.array_equal(run(batch), expected)


def test_results_outlast_the_next_run(file, batch):
    run = load(file)

    first = run(batch[:1])
    kept = first.copy()
    run(batch[1:2])

    assert np.array_equal(first, kept)


def test_runners_with_other_numbers_of_threads_take_turns(file, batch):
    one, two = load(file, threads=1), load(file, threads=2)
    expected = one(batch)

    for _ in range(3):
        assert np.array_equal(two(batch), expected)
        assert runner._library()._threadpool_get_thread_count() == 2
        assert np.array_equal(one(batch), expected)
        assert runner._library()._threadpool_get_thread_count() == 1


def test_nothing_is_printed(file, batch, capfd):
    load(file, threads=2)(batch)
    load(file, threads=1)(batch)

    assert capfd.readouterr() == ("", "")


def test_a_truncated_file_is_refused(file, tmp_path):
    content, cut = file.read_bytes(), tmp_path / "model.pte"
    for length in (0, 1, 39, 40, 41, len(content) // 2, len(content) - 41, len(content) - 40, len(content) - 1):
        cut.write_bytes(content[:length])

        with pytest.raises(StorageError, match=r"model.pte: the file was cut off, or Quaver did not write it"):
            load(cut)


def test_a_file_with_a_bit_changed_is_refused(file, tmp_path):
    content, changed = bytearray(file.read_bytes()), tmp_path / "model.pte"
    for position in random.Random(0).sample(range(len(content)), 60):
        content[position] ^= 1 << position % 8
        changed.write_bytes(content)
        content[position] ^= 1 << position % 8

        with pytest.raises(StorageError, match=r"model.pte: the file (is damaged|was cut off)"):
            load(changed)


@pytest.mark.parametrize("content", [b"", b"hello", b"\0" * 5000, b"PK\3\4" + b"x" * 300])
def test_a_foreign_file_is_refused(content, tmp_path):
    (tmp_path / "model.pte").write_bytes(content)

    with pytest.raises(StorageError, match="Quaver did not write it"):
        load(tmp_path / "model.pte")


def test_a_sealed_file_that_executorch_cannot_read_is_an_error_with_its_reason(tmp_path, capfd):
    (tmp_path / "model.pte").write_bytes(seal.sealed(b"no program at all" * 20))

    with pytest.raises(StorageError, match=r"model.pte: ExecuTorch cannot run it: .*rogram"):
        load(tmp_path / "model.pte")
    assert capfd.readouterr().err == ""


def test_a_sealed_program_of_another_origin_is_an_error(file, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "FACTS", "nobody's")

    with pytest.raises(StorageError, match="ExecuTorch cannot run it"):
        load(file)


def test_a_failure_while_it_runs_is_an_error(file, batch, capfd):
    run = load(file)
    run.inputs = [Input("input", (None, 3, 8, 9), np.dtype("float32"))]

    with pytest.raises(EngineError, match="ExecuTorch failed while it ran the model"):
        run(np.zeros((1, 3, 8, 9), np.float32))
