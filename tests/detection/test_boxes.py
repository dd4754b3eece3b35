import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quaver.detection import overlap, suppress
from quaver.detection.boxes import area

SQUARE = torch.tensor([[0.0, 0.0, 4.0, 4.0]])
CORNERS = st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 8), st.integers(1, 8))


def boxes_at(corners):
    return torch.tensor([(left, top, left + width, top + height) for left, top, width, height in corners]).float()


@pytest.mark.parametrize(
    ("other", "expected"),
    [((0, 0, 4, 4), 1), ((0, 0, 4, 2), 0.5), ((2, 2, 6, 6), 4 / 28), ((4, 0, 8, 4), 0), ((5, 5, 3, 3), 0)],
)
def test_overlap_is_intersection_over_union(other, expected):
    assert overlap(SQUARE, torch.tensor([other]).float()).item() == pytest.approx(expected)


def test_a_box_that_ends_before_it_begins_has_no_area():
    assert area(torch.tensor([3.0, 0.0, 1.0, 5.0])) == 0


@given(st.lists(CORNERS, min_size=1, max_size=6), st.lists(CORNERS, min_size=1, max_size=6))
def test_overlap_counts_pixels(corners, others):
    measured = overlap(boxes_at(corners), boxes_at(others))

    for i, one in enumerate(corners):
        for j, two in enumerate(others):
            first, second = pixels(one), pixels(two)
            assert measured[i, j].item() == pytest.approx(len(first & second) / len(first | second), abs=1e-6)


def pixels(corner):
    left, top, width, height = corner
    return {(x, y) for x in range(left, left + width) for y in range(top, top + height)}


@given(st.lists(st.tuples(CORNERS, st.integers(0, 5), st.integers(0, 1)), min_size=1, max_size=12))
def test_suppression_keeps_the_best_of_those_that_overlap_and_every_box_that_no_kept_one_covers(rows):
    corners, scores, labels = zip(*rows, strict=True)
    boxes, scores, labels = boxes_at(corners), torch.tensor(scores).float(), torch.tensor(labels)

    kept = suppress(boxes, scores, labels, 0.4).tolist()

    assert scores[kept].tolist() == sorted(scores[kept].tolist(), reverse=True)
    close = (overlap(boxes, boxes) > 0.4) & (labels[:, None] == labels)
    for box in range(len(rows)):
        better = [other for other in kept if close[other, box] and other != box]
        if box in kept:
            assert better == []
        else:
            assert any((scores[other], -other) > (scores[box], -box) for other in better)


def test_boxes_of_other_classes_are_left_alone():
    kept = suppress(SQUARE.repeat(3, 1), torch.tensor([0.5, 0.9, 0.7]), torch.tensor([0, 1, 1]), 0.5)

    assert kept.tolist() == [1, 0]


def test_of_no_boxes_none_are_kept():
    assert suppress(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0), 0.5).tolist() == []
