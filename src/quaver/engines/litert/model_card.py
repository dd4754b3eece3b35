"""What Android Studio and Netron show of a ``.tflite`` file: TensorFlow Lite's metadata, and the labels packed behind it.

The metadata is a flatbuffer of a schema of its own (``metadata_schema.fbs`` of tflite-support), for which no bindings come
with LiteRT: tables are written here field by field, each by its number in the schema. The files that it names are a zip
archive behind the model, which archivers find from the end of the file.
"""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quaver.engines.engine import WriteOptions

NAME = "TFLITE_METADATA"
IDENTIFIER = b"M001"
PARSER = "1.0.0"
"""The first version of the schema: every field here has been in it from the beginning."""
LABELS = "labels.txt"

_AXIS_LABELS, _IMAGE, _NORMALIZATION, _RGB, _GREY = 2, 2, 1, 1, 2  # numbers of the schema's enums and unions
_IMAGE_RANK, _TIME = 4, (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Number:
    """A field of one byte: an enum, or which table of a union follows."""

    value: int


Field = Any
"""A string, a `Number`, a tuple of floats, a `FlatbufferTable` or a list of tables; None is left out."""


class FlatbufferTable(tuple[Field, ...]):
    """A table of the schema: its fields in order."""

    __slots__ = ()

    @classmethod
    def of(cls, *fields: Field) -> "FlatbufferTable":
        """From its fields."""
        return cls(fields)


def model_card(
    inputs: dict[str, tuple[int, ...]], outputs: dict[str, tuple[int, ...]], origin: dict[str, Any], options: WriteOptions
) -> bytes:
    """The metadata of a file with these inputs, by name and in the shapes in which it takes them, and these outputs."""
    source = str(origin.get("source", ""))
    description = (
        f"Written for LiteRT by Quaver {origin.get('quaver', '')}; SHA-256 of the program's tensors: {source}. The note "
        "'quaver' in this file tells its passes and thresholds."
    )
    told = origin.get("preprocessing", {})
    taken = [_input(name, shape, told, options) for name, shape in inputs.items()]
    classes = len(told.get("labels", ()))
    given = [_output(name, place == 0 and shape[-1:] == (classes,)) for place, (name, shape) in enumerate(outputs.items())]
    graph = FlatbufferTable.of("main", "", taken, given)
    return packed(FlatbufferTable.of("Quaver model", description, source[:12], [graph], "Quaver", None, None, PARSER))


def _input(name: str, shape: Sequence[int], told: dict[str, Any], options: WriteOptions) -> FlatbufferTable:
    """An input: an image if it has four dimensions and one or three channels, with how its values are brought to scale."""
    layout = options.image.layout.lower() if options.image is not None else options.input_layout
    channels = (shape[-1] if layout == "nhwc" else shape[1]) if len(shape) == _IMAGE_RANK else 0
    content = None
    if len(shape) == _IMAGE_RANK and channels in (1, 3):
        properties = FlatbufferTable.of(Number(_RGB if channels == 3 else _GREY))
        content = FlatbufferTable.of(Number(_IMAGE), properties)
    order = "batch, rows, columns, channels" if layout == "nhwc" else "batch, channels, rows, columns"
    description = f"{'float32' if options.image is None else 'uint8'}, {order}" if len(shape) == _IMAGE_RANK else ""
    units = None
    if told and content is not None and options.image is None:  # bytes are brought to scale inside
        mean, std = (tuple(told["unit"] * value for value in told[name]) for name in ("mean", "std"))
        units = [FlatbufferTable.of(Number(_NORMALIZATION), FlatbufferTable.of(mean, std))]
        description += "; (pixel - mean) / std, pixels from 0 to 255"
    return FlatbufferTable.of(name, description, None, content, units)


def _output(name: str, has_labels: bool) -> FlatbufferTable:
    """An output; with labels, the file in which they are."""
    if not has_labels:
        return FlatbufferTable.of(name)
    file = FlatbufferTable.of(LABELS, "a label for each score, a line each", Number(_AXIS_LABELS))
    return FlatbufferTable.of(name, "a score for each label", None, None, None, None, [file])


def with_labels(content: bytes, labels: Sequence[str], behind: int) -> bytes:
    """A file's content with its labels behind it as a zip archive, in which ``behind`` bytes more are the comment."""
    if not labels:
        return content
    whole = io.BytesIO(content)
    with zipfile.ZipFile(whole, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(LABELS, _TIME), "".join(f"{label}\n" for label in labels))
    # the last two bytes of an archive say how long its comment is
    return whole.getvalue()[:-2] + behind.to_bytes(2, "little")


# the flatbuffer


def packed(root: FlatbufferTable) -> bytes:
    """A table and all below it."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(_table(builder, root), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _table(builder: Any, table: FlatbufferTable) -> int:
    written = [_written(builder, field) for field in table]
    builder.StartObject(len(table))
    for slot, (field, value) in enumerate(zip(table, written, strict=True)):
        if isinstance(field, Number):
            builder.PrependInt8Slot(slot, value, 0)
        elif value is not None:
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
    return int(builder.EndObject())


def _written(builder: Any, field: Field) -> int | None:
    """What a table refers to, written before it; the value itself of a number."""
    if field is None or field == "":
        return None
    if isinstance(field, Number):
        return field.value
    if isinstance(field, str):
        return int(builder.CreateString(field))
    if isinstance(field, FlatbufferTable):
        return _table(builder, field)
    if isinstance(field, list):
        return _vector(builder, [_table(builder, item) for item in field], builder.PrependUOffsetTRelative)
    return _vector(builder, field, builder.PrependFloat32)


def _vector(builder: Any, items: Sequence[Any], prepend: Any) -> int:
    builder.StartVector(4, len(items), 4)
    for item in reversed(items):
        prepend(item)
    return int(builder.EndVector())
