import os
import pickle

import numpy as np
import pytest
import torch

from quaver.data import open_dataset
from quaver.data.cifar10 import MEAN, STD, TRAINING
from quaver.errors import DataError

FILES = (*TRAINING, "test_batch")


def part(number, count=4):
    generator = np.random.default_rng(number)
    return generator.integers(0, 256, (count, 3072), dtype=np.uint8), generator.integers(0, 10, count)


def write_binary(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(FILES):
        pixels, labels = part(number)
        records = np.concatenate([labels[:, None].astype(np.uint8), pixels], 1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())


def write_python(folder, protocol=2, as_bytes=True):
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(FILES):
        pixels, labels = part(number)
        key = str.encode if as_bytes else str
        table = {key("data"): pixels, key("labels"): labels.tolist(), key("filenames"): [key("a.png")] * 4}
        (folder / name).write_bytes(pickle.dumps(table, protocol))


@pytest.fixture(params=["binary", "binary here", "python", "python 0", "python 4", "python 5", "python text"])
def cifar(request, tmp_path):
    if request.param.startswith("binary"):
        write_binary(tmp_path if "here" in request.param else tmp_path / "cifar-10-batches-bin")
    else:
        *_, variant = request.param.split()
        options = {"protocol": int(variant)} if variant.isdigit() else {"as_bytes": variant != "text"}
        write_python(tmp_path / "cifar-10-batches-py", **options)
    return tmp_path


def test_both_layouts_give_the_images_normalized(cifar):
    data = open_dataset("cifar10", "train", data_dir=cifar)

    assert (len(data), data.classes, data.image_shape) == (20, 10, (3, 32, 32))
    pixels, labels = part(3)
    image, label = data[13]
    assert label == labels[1]
    expected = (pixels[1].reshape(3, 32, 32) / 255 - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]
    np.testing.assert_allclose(image.numpy(), expected, atol=1e-5)
    assert image.dtype == torch.float32


def test_the_test_images_are_the_validation_set(cifar):
    data = open_dataset("cifar10", "val", data_dir=cifar)

    assert data.labels.tolist() == part(5)[1].tolist()


def test_images_can_be_scaled(cifar):
    data = open_dataset("cifar10", "val", data_dir=cifar, image_size=48)

    assert data.image_shape == (3, 48, 48)
    assert data.batch([0, 1])[0].shape == (2, 3, 48, 48)


def test_a_missing_set_says_where_it_was_looked_for_and_what_it_is(tmp_path):
    with pytest.raises(DataError) as error:
        open_dataset("cifar10", "train", data_dir=tmp_path)

    message = str(error.value)
    assert message.startswith(f"{tmp_path}: CIFAR-10 was not found.")
    assert str(tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin") in message
    assert "cifar-10-python.tar.gz" in message
    assert "nothing is downloaded" in message


def test_a_file_of_the_five_that_is_missing_is_named(tmp_path):
    write_binary(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()

    with pytest.raises(DataError, match=r"of CIFAR-10's train files, missing: data_batch_4.bin"):
        open_dataset("cifar10", "train", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "has 0 bytes"),
        (bytes(3072), "no multiple of the 3073"),
        (bytes([11]) + bytes(3072), "label outside 0..9"),
    ],
)
def test_a_damaged_binary_file_is_named(tmp_path, content, fact):
    (tmp_path / "test_batch.bin").write_bytes(content)

    with pytest.raises(DataError, match=rf"test_batch.bin: .*{fact}"):
        open_dataset("cifar10", "val", data_dir=tmp_path)


class Dangerous:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(
    ("table", "fact"),
    [
        ({b"data": Dangerous(), b"labels": [1]}, "names posix.mkdir, which is no part of a table of numbers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [1, 2]}, "holds no CIFAR-10 data"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "1 labels and pixels of shape"),
        ({b"data": np.zeros((1, 3072), np.float32), b"labels": [1]}, "an array of 'f4', not of bytes"),
        ({b"data": np.zeros((1, 3000), np.uint8), b"labels": [1]}, "wanted 3072 bytes for each"),
        ({b"data": np.zeros((1, 3072), object), b"labels": [1]}, "an array of 'O8', not of bytes"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1.5]}, "BINFLOAT"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [2**80]}, "too large for a pixel or a label"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [[1]]}, "a label that is no whole number"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [99]}, "CIFAR-100"),
        ([1, 2], "holds no CIFAR-10 data, but a list"),
    ],
)
def test_a_pickle_that_is_not_the_set_is_refused_and_runs_nothing(tmp_path, monkeypatch, table, fact):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps(table, 2))

    with pytest.raises(DataError, match=fact):
        open_dataset("cifar10", "val", data_dir=tmp_path)

    assert not (tmp_path / "ran").exists()


PLAIN, POINTERS = b"J\xff\xff\xff\xff" * 2 + b"K\x00t", b"J\xff\xff\xff\xff" * 2 + b"K\x3ft"


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_data_type_that_says_its_bytes_are_pointers_is_refused(tmp_path, protocol):
    content = pickle.dumps({b"data": part(0)[0], b"labels": [1] * 4}, protocol)
    assert content.count(PLAIN) == 1
    (tmp_path / "test_batch").write_bytes(content.replace(PLAIN, POINTERS))

    with pytest.raises(DataError, match="sets a state"):
        open_dataset("cifar10", "val", data_dir=tmp_path)


@pytest.mark.parametrize("shape", [b"K\x04M\x00\x18\x86", b"K\x04J\x00\x00\x00\x70\x86", b"K\x04J\xff\xff\xff\xff\x86"])
def test_an_array_of_more_values_than_the_file_has_is_refused(tmp_path, shape):
    content = pickle.dumps({b"data": part(0)[0], b"labels": [1] * 4}, 4)
    assert content.count(b"K\x04M\x00\x0c\x86") == 1
    (tmp_path / "test_batch").write_bytes(content.replace(b"K\x04M\x00\x0c\x86", shape))

    with pytest.raises(DataError, match="an array of 12288 bytes that says it has shape"):
        open_dataset("cifar10", "val", data_dir=tmp_path)


def test_a_table_that_holds_itself_is_refused(tmp_path):
    table = {b"data": part(0)[0], b"labels": []}
    table[b"labels"].append(table[b"labels"])
    (tmp_path / "test_batch").write_bytes(pickle.dumps(table, 2))

    with pytest.raises(DataError, match="a label that is no whole number"):
        open_dataset("cifar10", "val", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"\x80\x02}r\xff\xff\xff\x0f.", "a place that no writer chooses"),  # LONG_BINPUT: room for 268 million values
        (b"\x80\x02cnumpy\ndtype\n}b.", "sets a state"),  # BUILD: of a function
        (b"\x80\x02cnumpy\ndtype\nN}U\x01aK\x01s\x86b.", "sets a state"),  # the same, attribute by attribute
        (b"\x80\x02]N}U\x01aK\x01s\x86b.", "no whole pickle"),  # of a list
    ],
)
def test_a_pickle_made_to_do_harm_is_refused(tmp_path, content, fact):
    (tmp_path / "test_batch").write_bytes(content)

    with pytest.raises(DataError, match=fact):
        open_dataset("cifar10", "val", data_dir=tmp_path)


@pytest.mark.parametrize("end", [1, 100, 5000])
def test_a_pickle_that_was_cut_off_is_named(tmp_path, end):
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": part(0)[0], b"labels": [1] * 4}, 2)[:end])

    with pytest.raises(DataError, match=r"test_batch: cannot be read"):
        open_dataset("cifar10", "val", data_dir=tmp_path)
