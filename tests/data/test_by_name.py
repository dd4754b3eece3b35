import numpy as np
import pytest
import torch

from quaver.data import load_digits, open_dataset
from quaver.data.images import read_image
from quaver.errors import ConfigError, DataError


def ilsvrc(folder, picture, prefix=True):
    for split, labels in (("train", [0, 2, 1]), ("val", [1, 0])):
        lines = []
        for number, label in enumerate(labels):
            picture(folder / split / f"{number}.png", number)
            lines.append(f"{f'{split}/' if prefix else ''}{number}.png {label}")
        (folder / f"{split}_list.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_digits_are_there_without_a_folder():
    data = open_dataset("digits", "train")
    image, label = data[5]

    expected, expected_label = load_digits()[0][5]
    assert torch.equal(image, expected)
    assert label == expected_label
    assert (len(data), data.classes, data.image_shape) == (1438, 10, (3, 32, 32))


def test_digits_are_shifted_in_training_and_never_mirrored():
    data = open_dataset("digits", "train", augment=True)
    plain = open_dataset("digits", "train")[0][0][0].numpy()
    padded = np.pad(plain, 4, constant_values=-1)
    shifts = [padded[top : top + 32, left : left + 32] for top in range(9) for left in range(9)]

    for epoch in range(8):
        data.set_epoch(epoch)
        image = data[0][0][0].numpy()

        assert any(np.array_equal(image, shift) for shift in shifts)


@pytest.mark.parametrize("prefix", [True, False])
def test_an_ilsvrc_folder_is_read_through_its_lists(tmp_path, picture, prefix):
    folder = ilsvrc(tmp_path, picture, prefix)

    data = open_dataset("ilsvrc", "val", data_dir=folder)

    assert (len(data), data.classes, data.image_shape) == (2, 3, (3, 224, 224))
    image, label = data[0]
    assert label == 1
    assert np.array_equal(image.numpy(), read_image(folder / "val" / "0.png"))


def test_a_missing_list_says_what_the_folder_should_look_like(tmp_path):
    with pytest.raises(DataError, match=r"train_list.txt: there is no such list. .*train/, val/, train_list.txt"):
        open_dataset("ilsvrc", "train", data_dir=tmp_path)


def test_a_list_whose_images_are_elsewhere_says_where_they_were_looked_for(tmp_path):
    (tmp_path / "val_list.txt").write_text("images/1.jpg 0\n")

    with pytest.raises(DataError, match=r"val_list.txt: line 1: .*images/1.jpg and .*val/images/1.jpg"):
        open_dataset("ilsvrc", "val", data_dir=tmp_path)


def test_a_folder_of_folders_has_a_class_for_each(folder_set, picture):
    (folder_set / "train" / ".cache").mkdir()
    (folder_set / "train" / "cat" / "notes.txt").write_text("no image")
    picture(folder_set / "train" / "dog" / "more" / "9.JPG", 3)

    data = open_dataset("folder", "train", data_dir=folder_set, image_size=96)

    assert (data.classes, data.image_shape) == (2, (3, 96, 96))
    assert data.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert np.array_equal(data[1][0].numpy(), read_image(folder_set / "train" / "cat" / "1.png", 96))


@pytest.fixture
def classes(tmp_path, picture):
    for name, count in (("cat", 12), ("dog", 3), ("eel", 2)):
        for number in range(count):
            picture(tmp_path / name / f"{number}.png", number)
    return tmp_path


def files_of(data):
    return {data.path(index) for index in range(len(data))}


def test_of_a_plain_folder_per_class_a_fifth_is_held_out(classes):
    train, test = (open_dataset("folder", split, data_dir=classes, image_size=32) for split in ("train", "val"))

    assert files_of(train).isdisjoint(files_of(test))
    assert files_of(train) | files_of(test) == set(classes.rglob("*.png"))
    assert (train.classes, test.classes) == (3, 3)
    assert np.bincount(test.labels).tolist() == [2, 1, 1]
    assert all(
        data.path(index).parent.name == ("cat", "dog", "eel")[label]
        for data in (train, test)
        for index, label in enumerate(data.labels)
    )


def test_which_images_are_held_out_does_not_depend_on_the_seed_or_the_place(classes, tmp_path_factory):
    moved = tmp_path_factory.mktemp("moved") / "images"
    before = {path.relative_to(classes) for path in files_of(open_dataset("folder", "val", data_dir=classes, seed=1))}
    classes.rename(moved)

    after = {path.relative_to(moved) for path in files_of(open_dataset("folder", "val", data_dir=moved, seed=2))}

    assert after == before
    assert before != {path.relative_to(moved) for path in sorted(moved.rglob("*.png"))[: len(before)]}


def test_a_class_of_one_image_cannot_be_split(classes, picture):
    picture(classes / "fox" / "0.png", 0)

    with pytest.raises(DataError, match=r"fox: there is one image in it"):
        open_dataset("folder", "train", data_dir=classes)


def test_a_class_that_only_validation_has_is_refused(folder_set, picture):
    picture(folder_set / "val" / "horse" / "0.png")

    with pytest.raises(DataError, match=r"val: has classes that train/ has not: horse"):
        open_dataset("folder", "val", data_dir=folder_set)


def test_a_class_without_images_is_named(folder_set):
    (folder_set / "train" / "empty").mkdir()

    with pytest.raises(DataError, match=r"empty: there is no image in it"):
        open_dataset("folder", "train", data_dir=folder_set)


@pytest.mark.parametrize("made", [True, False])
def test_a_folder_that_is_missing_or_flat_says_what_it_should_look_like(tmp_path, made):
    if made:
        (tmp_path / "train").mkdir()

    with pytest.raises(DataError, match=r"train: .*train/CLASS/IMAGE and .*val/CLASS/IMAGE"):
        open_dataset("folder", "train", data_dir=tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "ilsvrc", "folder"])
def test_without_a_folder_the_usual_place_is_looked_in(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DataError, match=r"^data/(cifar10|ILSVRC2012|images)"):
        open_dataset(name, "train")


def test_wrong_options_are_reported_together():
    with pytest.raises(ConfigError) as error:
        open_dataset("cifar", "test", image_size=0)

    assert "name='cifar': takes one of digits, cifar10" in str(error.value)
    assert "Did you mean 'cifar10'?" in str(error.value)
    assert "split='test': takes one of train, val" in str(error.value)
    assert "image_size=0" in str(error.value)


@pytest.mark.parametrize("size", [32, 96])
def test_what_an_image_looks_like_depends_on_seed_epoch_and_number_alone(folder_set, size):
    def images(seed, epoch, indices):
        data = open_dataset("folder", "train", data_dir=folder_set, image_size=size, augment=True, seed=seed)
        data.set_epoch(epoch)
        return data.batch(indices)[0]

    first = images(1, 2, [3, 4])

    assert torch.equal(first, images(1, 2, [3, 4]))
    assert torch.equal(first[1:], images(1, 2, [4]))
    assert not torch.equal(first, images(1, 3, [3, 4]))
    assert not torch.equal(first, images(2, 2, [3, 4]))


@pytest.mark.parametrize("index", [-1, 359])
def test_a_number_that_no_image_has_is_refused(index):
    with pytest.raises(IndexError, match=f"{index} is not among 359 images"):
        open_dataset("digits", "val")[index]
