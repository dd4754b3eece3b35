"""What Android Studio and Netron show of a ``.tflite`` file. Skipped where LiteRT is not installed."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from mobiles import mobile_program
from needs import need_litert
from quaver.engines.litert.flatbuffer import unpacked

need_litert()

pytestmark = pytest.mark.slow

from flatbuffers import encode, number_types, table  # noqa: E402

LABELS = ["cat", "dog", "wombat", "yak"]
MEAN, STD = [123.5, 116.0, 103.25], [58.5, 57.0, 57.5]
PREPARED = quaver.Preprocessing((8, 8), MEAN, STD, unit=1, labels=LABELS)


class Reader:
    """A table of a flatbuffer, by the numbers of its fields: as the format's specification says, without any schema."""

    def __init__(self, content, place=None):
        start = encode.Get(number_types.UOffsetTFlags.packer_type, content, 0) if place is None else place
        self.table = table.Table(content, start)

    def at(self, field):
        return self.table.Offset(4 + 2 * field)

    def text(self, field):
        return self.table.String(self.at(field) + self.table.Pos).decode() if self.at(field) else ""

    def byte(self, field):
        return self.table.Get(number_types.Int8Flags, self.at(field) + self.table.Pos) if self.at(field) else 0

    def sub(self, field):
        return Reader(self.table.Bytes, self.table.Indirect(self.at(field) + self.table.Pos))

    def tables(self, field):
        at = self.at(field)
        start = self.table.Vector(at) if at else 0
        count = self.table.VectorLen(at) if at else 0
        return [Reader(self.table.Bytes, self.table.Indirect(start + 4 * place)) for place in range(count)]

    def floats(self, field):
        return self.table.GetVectorAsNumpy(number_types.Float32Flags, self.at(field)).tolist()


def card(file):
    model = unpacked(file.read_bytes())
    (entry,) = [each for each in model.metadata if each.name == b"TFLITE_METADATA"]
    content = bytearray(model.buffers[entry.buffer].data)
    assert content[4:8] == b"M001"
    return Reader(content)


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return mobile_program(net, (8, 3, 8, 8)).made_for("litert")


@pytest.fixture(scope="module")
def file(program, tmp_path_factory):
    place = tmp_path_factory.mktemp("litert")
    return quaver.export(program, place, target="litert", preprocessing=PREPARED)


def test_it_tells_where_the_model_comes_from(file):
    origin = json.loads(file.with_name("model.tflite.json").read_text())
    told = card(file)

    assert told.text(0) == "Quaver model"
    assert f"Quaver {quaver.__version__}" in told.text(1)
    assert origin["source"] in told.text(1)
    assert (told.text(2), told.text(4), told.text(7)) == (origin["source"][:12], "Quaver", "1.0.0")


def test_the_input_is_an_image_with_its_normalisation(file):
    (graph,) = card(file).tables(3)
    (given,) = graph.tables(2)

    assert given.text(0) == "input"
    assert "(pixel - mean) / std" in given.text(1)
    content = given.sub(3)
    assert (content.byte(0), content.sub(1).byte(0)) == (2, 1)  # ImageProperties, RGB
    (unit,) = given.tables(4)
    assert unit.byte(0) == 1  # NormalizationOptions
    assert (unit.sub(1).floats(0), unit.sub(1).floats(1)) == (MEAN, STD)


def test_the_output_names_the_file_of_its_labels_and_the_archive_holds_it(file):
    (graph,) = card(file).tables(3)
    (output,) = graph.tables(3)
    (labels,) = output.tables(6)

    assert (output.text(0), labels.text(0), labels.byte(2)) == ("output", "labels.txt", 2)  # TENSOR_AXIS_LABELS
    with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as archive:
        assert archive.testzip() is None
        assert archive.read("labels.txt").decode().splitlines() == LABELS
        (entry,) = archive.infolist()
    assert file.read_bytes()[entry.header_offset :].startswith(b"PK\x03\x04")  # counted from the file's first byte


def test_the_seal_is_the_archives_comment_so_that_strict_readers_find_its_end(file):
    content = file.read_bytes()
    end = content.rindex(b"PK\x05\x06")

    assert int.from_bytes(content[end + 20 : end + 22], "little") == len(content) - end - 22


def test_labels_change_nothing_that_is_computed(program, file, tmp_path):
    images = np.random.default_rng(0).standard_normal((4, 3, 8, 8), np.float32)
    plain = quaver.export(program, tmp_path, target="litert")

    assert np.array_equal(quaver.runtime.load(plain)(images), quaver.runtime.load(file)(images))
    assert not zipfile.is_zipfile(plain)
    assert quaver.verify(program, file, [images]).passed


def test_bytes_are_brought_to_scale_inside_the_file(program, tmp_path):
    file = quaver.export(program, tmp_path, target="litert", image=PREPARED.image(), preprocessing=PREPARED)
    (given,) = card(file).tables(3)[0].tables(2)

    assert given.text(1) == "uint8, batch, rows, columns, channels"
    assert given.tables(4) == []


def test_scores_of_other_things_than_the_labels_are_not_called_by_them(program, tmp_path):
    three = replace(PREPARED, labels=LABELS[:3])
    (output,) = card(quaver.export(program, tmp_path, target="litert", preprocessing=three)).tables(3)[0].tables(3)

    assert output.tables(6) == []
