"""OpenVINO and ONNX Runtime behind one interface: batches of any size, inputs that do not fit, files that are damaged."""

import json
import random
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import quaver
from limits import AN_HOUR
from quaver.engines import ENGINES
from quaver.errors import InputError, QuaverError, StorageError

pytestmark = pytest.mark.slow

TARGETS = ["openvino", "onnx"]


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    qat = quaver.quant_aware(net, example_inputs=(torch.zeros(2, 3, 8, 8),))
    qat.train()(torch.randn(8, 3, 8, 8))
    return quaver.convert(qat.eval())


@pytest.fixture(scope="module", params=TARGETS)
def artefact(request, program, tmp_path_factory):
    return quaver.export(program, tmp_path_factory.mktemp(request.param), target=request.param)


@pytest.fixture(scope="module")
def batch():
    return np.random.default_rng(0).standard_normal((7, 3, 8, 8)).astype(np.float32)


def test_a_batch_of_any_size_gives_what_its_images_give_alone(artefact, batch):
    run = quaver.runtime.load(artefact)
    whole = run(batch)

    assert whole.shape == (7, 8)
    for start, size in ((0, 1), (1, 3), (4, 3), (0, 7), (6, 1)):
        np.testing.assert_array_equal(run(batch[start : start + size]), whole[start : start + size])
    assert run(batch[:0]).shape == (0, 8)


def test_the_engine_gives_what_the_program_gives(artefact, program, batch):
    with torch.no_grad():
        expected = program(torch.from_numpy(batch)).numpy()

    run = quaver.runtime.load(artefact)
    if run.engine == "openvino":  # whose arithmetic the program has
        np.testing.assert_array_equal(run(batch), expected)
    np.testing.assert_allclose(run(batch), expected, atol=2e-3)


def test_results_stay_when_the_next_batch_runs(artefact, batch):
    run = quaver.runtime.load(artefact)
    first = run(batch[:2])
    kept = first.copy()
    run(batch[2:4])

    np.testing.assert_array_equal(first, kept)


def test_a_batch_is_read_where_it_lies_and_left_as_it_was(artefact, batch):
    run = quaver.runtime.load(artefact)
    given, locked = batch.copy(), batch.copy()
    locked.flags.writeable = False  # as memory-mapped data is

    first = run(given)

    np.testing.assert_array_equal(given, batch)
    np.testing.assert_array_equal(run(locked), first)


def test_inputs_are_described_and_others_refused_by_name(artefact, batch):
    run = quaver.runtime.load(artefact)
    (given,) = run.inputs

    assert (given.shape, given.dtype) == ((None, 3, 8, 8), np.float32)
    with pytest.raises(InputError, match=r"shape \(7, 3, 8, 9\) does not fit the model's \(any, 3, 8, 8\)"):
        run(np.zeros((7, 3, 8, 9), np.float32))
    with pytest.raises(InputError, match="takes float32, not complex"):
        run(batch.astype(np.complex64))
    with pytest.raises(InputError, match=r"takes 1 inputs .* was given 2"):
        run(batch, batch)


def test_doubles_and_strided_arrays_are_taken(artefact, batch):
    run = quaver.runtime.load(artefact)

    np.testing.assert_array_equal(run(batch.astype(np.float64)), run(batch))
    np.testing.assert_array_equal(run(batch[::-2]), run(batch)[::-2])


def test_a_model_with_a_reshape_that_fixes_the_batch_is_refused_for_others(tmp_path):
    shape = numpy_helper.from_array(np.array([2, 4], np.int64), "shape")
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "fixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [shape],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")

    run = ENGINES["openvino"].load(tmp_path / "m.onnx", 1)
    assert run(np.zeros((2, 2, 2), np.float32)).shape == (2, 4)
    with pytest.raises(InputError, match=r"cannot carry a batch of shape \(3, 2, 2\)"):
        run(np.zeros((3, 2, 2), np.float32))


def damaged(content, generator):
    """The same bytes with some cut off, or one bit turned."""
    if generator.random() < 0.3:
        return content[: generator.randrange(len(content))]
    at = generator.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << generator.randrange(8))]) + content[at + 1 :]


def says_the_same(text, other):
    try:
        return json.loads(text) == json.loads(other)
    except ValueError:
        return False


def test_whatever_bit_is_turned_in_whatever_file_the_artefact_is_refused(artefact, tmp_path):
    generator = random.Random(0)
    files = sorted(artefact.parent.iterdir())
    for file in files:
        (tmp_path / file.name).write_bytes(file.read_bytes())

    for _ in range(60):
        victim = tmp_path / generator.choice(files).name
        whole = victim.read_bytes()
        changed = damaged(whole, generator)
        if victim.suffix == ".json" and says_the_same(whole, changed):  # the last digit of a number has digits to spare
            continue
        victim.write_bytes(changed)
        with pytest.raises(StorageError):
            quaver.runtime.load(tmp_path / artefact.name)
        victim.write_bytes(whole)
    quaver.runtime.load(tmp_path / artefact.name)


def test_a_missing_file_of_an_artefact_is_named(artefact, tmp_path):
    for file in artefact.parent.iterdir():
        if file.suffix != ".bin" or artefact.suffix != ".xml":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    missing = tmp_path / ("model.bin" if artefact.suffix == ".xml" else "model.onnx")
    missing.unlink(missing_ok=True)

    with pytest.raises(StorageError, match=missing.name):
        quaver.runtime.load(tmp_path / artefact.name)


FUZZ = """
import random, sys
from pathlib import Path
import quaver
from quaver.errors import QuaverError

folder, name = Path(sys.argv[1]), sys.argv[2]
generator = random.Random(1)
files = {file: file.read_bytes() for file in folder.iterdir()}
for _ in range(40):
    file = generator.choice(sorted(files))
    content = files[file]
    kind = generator.random()
    if kind < 0.4:
        content = content[: generator.randrange(len(content))]
    elif kind < 0.6:
        content = generator.randbytes(200)
    else:
        at = generator.randrange(len(content))
        content = content[:at] + bytes([content[at] ^ (1 << generator.randrange(8))]) + content[at + 1 :]
    file.write_bytes(content)
    try:
        quaver.runtime.load(folder / name)
    except QuaverError:
        pass
    file.write_bytes(files[file])
print("survived")
"""


def test_files_from_elsewhere_with_no_checksums_give_errors_and_never_a_crash(artefact, tmp_path):
    for file in artefact.parent.iterdir():
        if file.suffix != ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())

    command = [sys.executable, "-c", FUZZ, str(tmp_path), artefact.name]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=AN_HOUR)

    assert (done.returncode, done.stdout.strip()) == (0, "survived"), done.stderr[-2000:]


SIGNALLED = """
import os, signal, sys
import numpy as np
import quaver

batch = np.zeros((1, 3, 8, 8), np.float32)
runs = [quaver.runtime.load(sys.argv[1]) for _ in range(2)]
for run in runs:
    run(batch)
while runs:
    del run
    run = runs.pop(0)
del run
signal.signal(signal.SIGUSR1, lambda *_: print("told"))
os.kill(os.getpid(), signal.SIGUSR1)
"""


def test_a_signal_after_models_have_come_and_gone_is_no_crash(artefact):
    done = subprocess.run([sys.executable, "-c", SIGNALLED, str(artefact)], capture_output=True, text=True, timeout=AN_HOUR)

    assert (done.returncode, done.stdout.strip()) == (0, "told"), done.stderr[-2000:]


def test_of_a_folder_with_a_program_for_several_engines_openvinos_is_taken(program, tmp_path):
    for target in ("onnx", "openvino"):
        quaver.export(program, tmp_path, target=target)

    assert quaver.runtime.load(tmp_path).engine == "openvino"


def test_nonsense_in_place_of_an_artefact_is_an_error_that_names_it(tmp_path):
    for name in ("model.xml", "model.onnx"):
        (tmp_path / name).write_bytes(b"nonsense" * 9)
        with pytest.raises(StorageError, match=name):
            quaver.runtime.load(tmp_path / name)
    (tmp_path / "another.onnx").touch()
    with pytest.raises(QuaverError, match=r"expected one model .* found model\.xml, another\.onnx, model\.onnx"):
        quaver.runtime.load(tmp_path)
    with pytest.raises(QuaverError, match="no such file"):
        quaver.runtime.load(tmp_path / "other.onnx")
    with pytest.raises(QuaverError, match="not a model that an engine reads"):
        quaver.runtime.load(tmp_path / "other.txt")
