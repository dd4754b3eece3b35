import os

import pytest

from quaver.data.image_list import ListedImage, read_image_list, refuse_missing
from quaver.errors import DataError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "list.txt"


def test_a_line_is_a_path_and_a_label(path):
    path.write_text("val/a.jpg 3\nb.jpg 0\n")

    assert read_image_list(path, 4) == [ListedImage(1, "val/a.jpg", 3), ListedImage(2, "b.jpg", 0)]


def test_spaces_in_paths_empty_lines_tabs_and_foreign_line_ends_do_no_harm(path):
    path.write_bytes("\ufeffmy  photos/a 1.jpg 3\r\n\r\n  b.jpg\t0  \r\n \n7 7".encode())

    images = read_image_list(path, 10)

    assert images == [ListedImage(1, "my  photos/a 1.jpg", 3), ListedImage(3, "b.jpg", 0), ListedImage(5, "7", 7)]


def test_a_name_that_is_not_utf8_leads_to_its_file(tmp_path, path):
    name = b"caf\xe9.jpg"
    open(os.fsencode(tmp_path) + b"/" + name, "wb").close()
    path.write_bytes(name + b" 1\n")

    (image,) = read_image_list(path, 2)

    assert os.fsencode(image.path) == name
    refuse_missing(tmp_path, [image])


WRONG = {
    "a.jpg": "there is no label: 'a.jpg'",
    "a.jpg x": "not a whole number: 'x'",
    "a.jpg 1.5": "not a whole number: '1.5'",
    "a.jpg 1_0": "not a whole number: '1_0'",
    "a.jpg +1": r"not a whole number: '\+1'",
    "a.jpg --1": "not a whole number: '--1'",
    "a.jpg ٣": "not a whole number: '٣'",
    "a.jpg -1": r"label -1 is outside 0\.\.9",
    "a.jpg 10": r"label 10 is outside 0\.\.9",
    "a.jpg " + "9" * 5000: r"9 is outside 0\.\.9",
}


@pytest.mark.parametrize(("line", "message"), WRONG.items(), ids=[line[:9] for line in WRONG])
def test_a_wrong_line_is_refused_with_its_number(path, line, message):
    path.write_text(f"ok.jpg 1\n{line}\n")

    with pytest.raises(DataError, match=rf"list\.txt: 1 wrong line:\n  line 2: .*{message}"):
        read_image_list(path, 10)


def test_all_wrong_lines_are_reported_at_once(path):
    path.write_text("a.jpg\nok.jpg 1\nb.jpg x\n\nc.jpg 99\n")

    with pytest.raises(DataError, match=r"(?s)3 wrong lines:\n  line 1: .*\n  line 3: .*\n  line 5: ") as caught:
        read_image_list(path, 10)

    assert "line 2" not in str(caught.value)


def test_a_list_that_is_all_wrong_is_reported_in_a_few_lines(path):
    path.write_text("a.jpg\n" * 5000)

    with pytest.raises(DataError, match=r"5000 wrong lines:") as caught:
        read_image_list(path, 10)

    assert "... and 4980 more" in str(caught.value)
    assert str(caught.value).count("\n") < 30


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_an_empty_list_is_refused(path, content):
    path.write_text(content)

    with pytest.raises(DataError, match="the list is empty"):
        read_image_list(path, 10)


def test_a_list_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt: the list cannot be read: No such file"):
        read_image_list(tmp_path / "none.txt", 10)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_image_list(tmp_path, 10)


def test_a_list_that_is_another_kind_of_file_is_refused_with_few_words(path):
    path.write_bytes(bytes(range(256)) * 40)

    with pytest.raises(DataError, match="wrong line"):
        read_image_list(path, 10)


def test_missing_images_are_reported_all_at_once(tmp_path):
    (tmp_path / "there.jpg").touch()
    images = [ListedImage(1, "a b.jpg", 0), ListedImage(2, "there.jpg", 0), ListedImage(7, "nul\0.jpg", 0)]

    with pytest.raises(DataError, match=r"2 images of the list not found:\n  line 1: 'a b\.jpg'\n  line 7: 'nul"):
        refuse_missing(tmp_path, images)
