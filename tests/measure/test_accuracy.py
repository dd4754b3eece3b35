import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver.errors import InputError
from quaver.measure.accuracy import top_k_hits

NAN, INF = float("nan"), float("inf")


def rows(*values):
    return np.array(values, np.float32)


# few different values, so that there are many ties
VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.0000001, -2.5, INF, -INF])


@settings(max_examples=200, derandomize=True)
@given(st.data(), st.integers(1, 6), st.integers(1, 7), st.integers(1, 8))
def test_a_hit_is_a_place_among_the_first_k_of_a_stable_descending_sort(data, images, classes, k):
    logits = rows(*(data.draw(st.lists(VALUES, min_size=classes, max_size=classes)) for _ in range(images)))
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=images, max_size=images)))

    hits = top_k_hits(logits, labels, k)

    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    assert hits.tolist() == [label in first for label, first in zip(labels.tolist(), order.tolist(), strict=True)]


def test_of_equal_logits_the_lower_class_comes_first():
    logits = np.zeros((5, 5), np.float32)

    for k in range(1, 6):
        assert top_k_hits(logits, np.arange(5), k).tolist() == [place < k for place in range(5)]


def test_with_fewer_classes_than_k_every_image_is_a_hit():
    assert top_k_hits(rows([1, 2, 3], [3, 2, 1]), np.array([0, 2]), 5).all()


def test_a_logit_that_is_no_number_is_never_a_hit_and_stands_behind_all_others():
    logits = rows([NAN, NAN, NAN], [NAN, 1, 2], [NAN, 1, 2], [NAN, -INF, NAN])

    assert top_k_hits(logits, np.array([0, 0, 2, 1]), 1).tolist() == [False, False, True, True]
    assert top_k_hits(logits, np.array([2, 0, 1, 1]), 5).tolist() == [False, False, True, True]


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0]])
def test_a_label_without_a_logit_is_refused(labels):
    with pytest.raises(InputError, match=r"3 logits: a label is 0\.\.2"):
        top_k_hits(np.zeros((2, 3), np.float32), np.array(labels), 1)


def test_no_images_have_no_hits():
    assert top_k_hits(np.zeros((0, 3), np.float32), np.zeros(0, np.int64), 1).tolist() == []


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.float16, np.float64])
def test_logits_of_any_type_are_compared_as_they_are(dtype):
    assert top_k_hits(np.array([[1, 7, 3]], dtype), np.array([1]), 1).all()
