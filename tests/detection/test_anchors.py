import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from quaver.detection.anchors import ALIKE, anchor_grid, boxes_of, by_anchor, published_anchors, shape_overlap
from quaver.models import YOLOv3

SIZE = 64
WHERE = anchor_grid(SIZE, published_anchors(SIZE))
COUNTS = (3 * 8 * 8, 3 * 4 * 4, 3 * 2 * 2)


def test_there_is_a_place_for_every_cell_and_anchor_of_the_maps():
    with torch.device("meta"):
        maps = YOLOv3(num_classes=4, scale=0.25)(torch.zeros(2, 3, SIZE, SIZE))

    assert len(WHERE.cells) == len(WHERE.sizes) == len(WHERE.strides) == sum(COUNTS)
    assert by_anchor(maps).shape == (2, sum(COUNTS), 9)


def test_the_numbers_of_a_place_are_those_of_its_cell_and_anchor():
    maps = tuple(torch.zeros(1, 3 * 6, SIZE // stride, SIZE // stride) for stride in (8, 16, 32))
    maps[1][0, 2 * 6 + 4, 3, 1] = 7  # third anchor, whether there is an object, fourth row, second column

    (place,) = (by_anchor(maps)[0, :, 4] == 7).nonzero()[:, 0].tolist()

    assert WHERE.cells[place].tolist() == [16, 48]
    assert WHERE.strides[place].item() == 16
    assert WHERE.sizes[place].tolist() == pytest.approx([59 * SIZE / 416, 119 * SIZE / 416])


BOX = st.tuples(st.floats(1, 62), st.floats(1, 62), st.floats(2, 60), st.floats(2, 60))


@given(st.lists(BOX, min_size=1, max_size=5))
def test_what_a_place_should_say_of_a_box_is_read_as_that_box(rows):
    middles, sizes = (torch.tensor([row[k : k + 2] for row in rows]) for k in (0, 2))
    boxes = torch.cat([middles - sizes / 2, middles + sizes / 2], 1)
    number, place = WHERE.assigned(boxes)
    own = WHERE.at(place)

    in_cell = (middles[number] - own.cells) / own.strides
    values = torch.cat([in_cell.clamp(1e-6, 1 - 1e-6).logit(), (sizes[number] / own.sizes).log()], 1)

    torch.testing.assert_close(boxes_of(values, own), boxes[number], atol=0.01, rtol=0)


@given(BOX)
def test_a_box_belongs_to_all_anchors_like_it_in_the_cells_that_its_middle_is_in(row):
    middle, size = torch.tensor([row[:2]]), torch.tensor([row[2:]])
    likeness = shape_overlap(size, torch.tensor(sum(published_anchors(SIZE), ())))[0]
    assume(likeness.max() > ALIKE and (likeness - ALIKE).abs().min() > 1e-3)

    _, place = WHERE.assigned(torch.cat([middle - size / 2, middle + size / 2], 1))

    own = WHERE.at(place)
    assert ((own.cells <= middle + 1e-4) & (middle <= own.cells + own.strides + 1e-4)).all()
    assert (shape_overlap(size, own.sizes) > ALIKE).all()
    assert len(place) == (likeness > ALIKE).sum()


def test_an_object_unlike_all_anchors_still_belongs_to_one():
    assert len(WHERE.assigned(torch.tensor([[1.0, 30.0, 63.0, 32.0]]))[1]) == 1


def test_numbers_that_make_no_sense_give_a_large_box_and_not_infinity():
    values = torch.full((len(WHERE.cells), 4), 1e4)

    assert boxes_of(values, WHERE).isfinite().all()


def test_the_published_anchors_grow_with_the_image():
    assert published_anchors(832)[0][0] == (20, 26)
