import sys

import numpy as np
import pytest
import torch

from quaver.data import Target
from quaver.detection import Found, average_precision
from quaver.errors import EngineError

BOX, OTHER = (10.0, 10.0, 30.0, 30.0), (40.0, 40.0, 60.0, 50.0)


def target(*rows):
    boxes, labels, difficult = zip(*rows, strict=True) if rows else ((), (), ())
    return Target(np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int64), np.array(difficult, np.bool_))


def found(*rows):
    boxes, scores, labels = zip(*rows, strict=True) if rows else ((), (), ())
    return Found(torch.tensor(boxes).reshape(-1, 4), torch.tensor(scores), torch.tensor(labels, dtype=torch.long))


def test_finding_everything_is_one(capsys):
    truth = [target((BOX, 0, False), (OTHER, 1, False)), target((BOX, 1, False))]
    seen = [found((BOX, 0.9, 0), (OTHER, 0.3, 1)), found((BOX, 0.6, 1))]

    assert average_precision(seen, truth, 2) == {"mAP": pytest.approx(1), "mAP50": pytest.approx(1)}
    assert capsys.readouterr().out == ""


def test_finding_nothing_is_zero():
    assert average_precision([found()], [target((BOX, 0, False))], 2) == {"mAP": 0, "mAP50": 0}


def test_where_nothing_is_there_is_nothing_to_count():
    assert average_precision([found((BOX, 0.9, 0))], [target()], 2) == {"mAP": 0, "mAP50": 0}


def test_one_of_two_objects_is_half():
    result = average_precision([found((BOX, 0.9, 0))], [target((BOX, 0, False), (OTHER, 0, False))], 1)

    assert result["mAP50"] == pytest.approx(51 / 101)  # recall is read at 0, 0.01 … 1, of which 51 are at most a half


def test_a_wrong_box_that_is_surer_halves_the_precision():
    result = average_precision([found((OTHER, 0.95, 0), (BOX, 0.9, 0))], [target((BOX, 0, False))], 1)

    assert result["mAP50"] == pytest.approx(0.5)


def test_a_box_that_is_off_counts_up_to_the_overlap_it_has():
    off = (10.0, 10.0, 30.0, 26.0)  # overlaps by 0.8

    result = average_precision([found((off, 0.9, 0))], [target((BOX, 0, False))], 1)

    assert result["mAP50"] == pytest.approx(1)
    assert result["mAP"] == pytest.approx(7 / 10)  # 0.5, 0.55 … 0.8 of the ten


@pytest.mark.parametrize("seen", [[(BOX, 0.9, 0)], [(BOX, 0.9, 0), (OTHER, 0.95, 0)]])
def test_a_difficult_object_counts_neither_as_missed_nor_as_found(seen):
    truth = [target((BOX, 0, False), (OTHER, 0, True))]

    assert average_precision([found(*seen)], truth, 1)["mAP50"] == pytest.approx(1)


def test_without_pycocotools_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)

    with pytest.raises(EngineError, match=r"pip install 'quaver\[detection\]'"):
        average_precision([found()], [target()], 1)
