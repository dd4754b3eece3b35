"""Skipped where LiteRT is not installed (``pip install 'quaver[litert]'``)."""

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from mobiles import mobile_program
from needs import need_litert
from quaver.engines.litert.writer import serialized
from quaver.errors import ConfigError, InputError, StorageError
from quaver.runtime import Input, load, seal

need_litert()


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    return mobile_program(net, (8, 3, 8, 8)).made_for("litert")


@pytest.fixture(scope="module")
def file(program, tmp_path_factory):
    return quaver.export(program, tmp_path_factory.mktemp("litert"), target="litert")


def batch(count):
    return np.random.default_rng(0).standard_normal((count, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_batch_of_any_size_is_run(file, program, count):
    assert np.array_equal(load(file)(batch(count)), program(torch.from_numpy(batch(count))).numpy())


def test_what_it_gives_is_the_callers_own(file):
    run = load(file)
    first = run(batch(1))
    kept = first.copy()

    run(batch(2)[1:])

    assert np.array_equal(first, kept)


def test_inputs_have_the_programs_names_and_shapes(file):
    assert load(file).inputs == [Input("input", (None, 3, 8, 8), np.dtype(np.float32))]


def test_an_input_that_does_not_fit_is_refused(file):
    with pytest.raises(InputError, match="does not fit the model's"):
        load(file)(batch(1)[:, :2])


def test_nothing_is_told_on_the_error_stream(file, capfd):
    load(file, threads=2)

    assert capfd.readouterr() == ("", "")


def test_a_file_says_where_it_comes_from(program):
    from quaver.engines.litert.runner import facts_in

    facts = facts_in(serialized(program, {"quaver": "1.2.3"}))

    assert facts["origin"] == {"quaver": "1.2.3"}
    assert facts["inputs"] == [["input", [None, 3, 8, 8], "float32"]]


def test_a_sealed_file_that_litert_cannot_read_is_an_error_with_its_reason(tmp_path):
    (tmp_path / "model.tflite").write_bytes(seal.sealed(b"no program at all" * 20))

    with pytest.raises(StorageError, match=r"model\.tflite: LiteRT cannot run it: .*valid Flatbuffer"):
        load(tmp_path / "model.tflite")


def test_images_with_channels_last_go_into_a_file_that_takes_them_so(program, file, tmp_path):
    last = quaver.export(program, tmp_path, target="litert", input_layout="nhwc")

    run = load(last)
    assert list(run.interpreter.get_input_details()[0]["shape"]) == [1, 8, 8, 3]
    assert "TRANSPOSE" not in [op["op_name"] for op in run.interpreter._get_ops_details()][:2]
    assert np.array_equal(run(batch(5)), load(file)(batch(5)))


def test_a_layout_that_an_engine_has_not_is_refused(program, tmp_path):
    with pytest.raises(ConfigError, match=r"export to onnx.*input_layout"):
        quaver.export(program, tmp_path, target="onnx", input_layout="nhwc")
