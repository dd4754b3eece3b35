import itertools

import numpy as np
import pytest

from quaver.data import Target, open_dataset, write_shapes
from quaver.data.voc import CLASSES, cropped, mirrored, read_annotation
from quaver.errors import DataError

OBJECT = (
    "<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin>"
    "<xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
)


def annotation(path, *objects):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(OBJECT.format(name=name, box=box, difficult=int(hard)) for name, box, hard in objects)
    path.write_text(f"<annotation><size><width>1</width></size>{rows}</annotation>")
    return path


@pytest.fixture
def voc(tmp_path, picture):
    """One image of 40 x 30 with two objects, for training and validation."""
    picture(tmp_path / "JPEGImages" / "one.jpg", size=(40, 30))
    annotation(tmp_path / "Annotations" / "one.xml", ("cat", (1, 1, 20, 15), False), ("dog", (21, 16, 40, 30), True))
    lists = tmp_path / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("one 1\n\n")
    (lists / "val.txt").write_text("one\n")
    return tmp_path


def test_boxes_are_in_pixels_of_the_scaled_image(voc):
    data = open_dataset("voc", "val", data_dir=voc, image_size=80)
    image, target = data[0]

    assert (len(data), data.classes, data.image_shape, data.class_names) == (1, 20, (3, 80, 80), CLASSES)
    assert image.shape == (3, 80, 80)
    np.testing.assert_allclose(target.boxes, [[0, 0, 40, 40], [40, 40, 80, 80]])
    assert target.labels.tolist() == [CLASSES.index("cat"), CLASSES.index("dog")]
    assert target.difficult.tolist() == [False, True]


def test_a_set_with_classes_of_its_own_lists_them(tmp_path):
    data = open_dataset("voc", "train", data_dir=write_shapes(tmp_path, train=3, val=1, size=64))

    assert data.class_names == ("square", "disc", "cross")
    assert len(data) == 3


@pytest.mark.parametrize("below", ["VOC2007", "VOCdevkit/VOC2012"])
def test_a_year_is_found_below_the_folder(voc, tmp_path_factory, below):
    place = tmp_path_factory.mktemp("years")
    (place / below).parent.mkdir(parents=True, exist_ok=True)
    voc.rename(place / below)

    assert len(open_dataset("voc", "train", data_dir=place)) == 1


def test_where_there_is_no_train_list_trainval_is_taken(voc):
    lists = voc / "ImageSets" / "Main"
    (lists / "train.txt").rename(lists / "trainval.txt")

    assert len(open_dataset("voc", "train", data_dir=voc)) == 1


def test_a_missing_set_says_where_it_was_looked_for_and_what_it_is(tmp_path):
    with pytest.raises(DataError, match=r"no VOC data was found: .*ImageSets/Main/train.txt.*Wanted: JPEGImages/NAME.jpg"):
        open_dataset("voc", "train", data_dir=tmp_path)


def test_everything_that_cannot_be_used_is_listed(voc):
    (voc / "ImageSets" / "Main" / "train.txt").write_text("one\ntwo\nthree\nfour\n")
    annotation(voc / "Annotations" / "one.xml", ("Cat", (1, 1, 2, 2), False))
    for name in ("three", "four"):
        (voc / "JPEGImages" / f"{name}.png").write_bytes(b"")
    (voc / "Annotations" / "four.xml").write_text("<annotation>")

    with pytest.raises(DataError) as error:
        open_dataset("voc", "train", data_dir=voc)

    message = str(error.value)
    assert "4 images of train cannot be used" in message
    assert "one.xml: the class 'Cat' is not known. Did you mean 'cat'?" in message
    assert "two.jpg: there is no such image" in message
    assert "three.xml: there is no such annotation" in message
    assert "four.xml: cannot be read" in message


@pytest.mark.parametrize(
    ("box", "fact"),
    [
        ((5, 5, 4, 9), "a box ends before it begins"),
        (("a", 1, 2, 3), "no box of four numbers"),
        (("nan", 1, 2, 3), "a box ends"),
        ((1, 1, "inf", 5), "outside of any image"),
        ((1, 1, "1e300", 5), "outside of any image"),
    ],
)
def test_a_box_that_is_none_is_refused(tmp_path, box, fact):
    path = annotation(tmp_path / "a.xml", ("cat", box, False))

    with pytest.raises(DataError, match=rf"a.xml: .*{fact}"):
        read_annotation(path, CLASSES)


ENTITIES = (
    '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in itertools.pairwise("abcdefghi"))
    + "]><annotation><object><name>&i;</name></object></annotation>"
)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (ENTITIES.encode(), "<!DOCTYPE>"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/hostname"><annotation/>', "<!DOCTYPE>"),
        (b"<a>" * 100_000, "nested more than 100 levels"),
        (b'<?xml version="1.0" encoding="nonsense"?><annotation/>', "cannot be read"),
        (b"<annotation>\xff</annotation>", "cannot be read"),
        (b"<annotation>" + b" " * (1 << 24) + b"</annotation>", "bytes"),
    ],
    ids=range(6),
)
def test_xml_that_is_hard_to_read_is_refused(tmp_path, content, fact):
    (tmp_path / "a.xml").write_bytes(content)

    with pytest.raises(DataError, match=rf"a.xml: .*{fact}"):
        read_annotation(tmp_path / "a.xml", CLASSES)


def test_an_annotation_in_another_encoding_that_it_names_is_read(tmp_path):
    text = annotation(tmp_path / "a.xml", ("cat", (1, 1, 2, 2), False)).read_text()
    (tmp_path / "a.xml").write_bytes(f'<?xml version="1.0" encoding="utf-16"?>{text}'.encode("utf-16"))

    assert read_annotation(tmp_path / "a.xml", CLASSES).labels.tolist() == [CLASSES.index("cat")]


@pytest.mark.parametrize("file", ["label_list.txt", "ImageSets/Main/train.txt"])
def test_a_list_in_another_encoding_is_named(voc, file):
    (voc / file).write_bytes("caf\u00e9\n".encode("utf-16"))

    with pytest.raises(DataError, match=rf"{file}: cannot be read: .*UTF-8"):
        open_dataset("voc", "train", data_dir=voc)


def test_a_name_that_is_too_long_for_any_file_is_named(voc):
    (voc / "ImageSets" / "Main" / "train.txt").write_text("x" * 5000)

    with pytest.raises(DataError, match="there is no such image"):
        open_dataset("voc", "train", data_dir=voc)


def test_an_image_without_objects_has_an_empty_target(tmp_path):
    target = read_annotation(annotation(tmp_path / "a.xml"), CLASSES)

    assert target.boxes.shape == (0, 4)
    assert len(target.labels) == 0


@pytest.mark.parametrize(("names", "fact"), [("\n", "has no names"), ("cat\ncat\n", "a name twice")])
def test_a_list_of_classes_that_is_none_is_refused(voc, names, fact):
    (voc / "label_list.txt").write_text(names)

    with pytest.raises(DataError, match=fact):
        open_dataset("voc", "train", data_dir=voc)


def test_a_part_of_an_image_keeps_the_objects_whose_middle_is_in_it():
    boxes = np.array([[0, 0, 10, 10], [8, 0, 20, 10], [18, 4, 26, 8]], np.float32)
    target = Target(boxes, np.array([0, 1, 2]), np.array([False, True, False]))

    part = cropped(target, (10, 0, 30, 10), 100)

    assert part.labels.tolist() == [1, 2]
    assert part.difficult.tolist() == [True, False]
    np.testing.assert_allclose(part.boxes, [[0, 0, 50, 100], [40, 40, 80, 80]])


def test_a_mirrored_box_is_where_its_object_went():
    image = np.zeros((1, 4, 8), np.float32)
    image[0, 1:3, 1:4] = 1

    flipped, target = mirrored(image, Target(np.array([[1, 1, 4, 3]], np.float32), np.array([0]), np.array([False])))

    left, top, right, bottom = target.boxes[0].astype(int)
    assert flipped[0, top:bottom, left:right].sum() == flipped.sum() == 6


def test_objects_stay_where_they_are_drawn_whatever_training_does_to_the_image(tmp_path):
    data = open_dataset(
        "voc", "train", data_dir=write_shapes(tmp_path, train=4, val=1, size=64), image_size=96, augment=True
    )
    seen = []

    for epoch in range(6):
        data.set_epoch(epoch)
        for image, target in (data[index] for index in range(4)):
            for (left, top, right, bottom), label in zip(target.boxes, target.labels, strict=True):
                middle = image[:, int(top + bottom) // 2, int(left + right) // 2]
                if min(right - left, bottom - top) > 8:  # less is an object that the crop cut through
                    seen.append(int(middle.argmax()) == label)  # squares are reddish, discs greenish, crosses bluish
        assert len(image) == 3

    assert len(seen) > 20
    assert np.mean(seen) > 0.95


@pytest.mark.parametrize(("box", "largest"), [((28, 28, 37, 37), 15), ((1, 1, 10, 10), 10)], ids=["middle", "corner"])
def test_training_sees_objects_larger_but_never_an_image_without_any(tmp_path, box, largest):
    folder = write_shapes(tmp_path, train=1, val=1, size=64)
    annotation(folder / "Annotations" / "000000.xml", ("disc", box, False))
    data = open_dataset("voc", "train", data_dir=folder, image_size=64, augment=True)
    widths = []

    for epoch in range(30):
        data.set_epoch(epoch)
        ((left, _, right, _),) = data[0][1].boxes
        widths.append(right - left)

    assert max(widths) >= largest


def test_what_an_image_looks_like_depends_on_the_epoch(tmp_path):
    data = open_dataset("voc", "train", data_dir=write_shapes(tmp_path, train=1, val=1, size=64), augment=True)

    first, again = data[0][0], data[0][0]
    data.set_epoch(1)

    assert first.equal(again)
    assert not first.equal(data[0][0])
