import os

import pytest

from quaver.reading import open_file, parse_json, read_bytes, read_text


@pytest.mark.parametrize("read", [open_file, read_bytes, read_text])
def test_what_is_no_file_is_refused_at_once(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="a pipe or a device"):
        read(tmp_path / "pipe")
    with pytest.raises(OSError, match="a pipe or a device"):
        read("/dev/zero")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing")


def test_a_file_that_is_too_large_is_not_taken_into_memory(tmp_path):
    (tmp_path / "large").write_bytes(bytes(101))

    with pytest.raises(OSError, match="the file has 101 bytes, and at most 100 can be right"):
        read_bytes(tmp_path / "large", 100)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("[" * 100_000, "nested too deep"),
        ("[" * 150 + "]" * 150, "nested more than 100 levels"),
        ('{"a": ' * 150 + "1" + "}" * 150, "nested more than 100 levels"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice"),
        ("1" * 5000, "integer string conversion"),
        ("{", "property name"),
    ],
    ids=range(6),
)
def test_json_that_is_hard_to_read_is_refused(text, fact):
    with pytest.raises(ValueError, match=fact):
        parse_json(text)


def test_plain_json_is_read():
    assert parse_json('{"a": [1, {"b": null}], "c": {}}') == {"a": [1, {"b": None}], "c": {}}
