"""Mean average precision, counted by pycocotools: the extra ``detection``."""

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from quaver.data import Target
from quaver.detection.detect import Found
from quaver.errors import EngineError

OUT_OF_RANGE = -1.0  # an area no object has: pycocotools counts such an object neither as found nor as missed


def average_precision(found: Sequence[Found], targets: Sequence[Target], classes: int) -> dict[str, float]:
    """``mAP`` over overlaps from 0.5 to 0.95, as COCO has it, and ``mAP50`` at 0.5, as VOC has it; from 0 to 1.

    Difficult objects are not counted, found or not.
    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise EngineError(
            "average precision is counted by pycocotools, which is not installed. pip install 'quaver[detection]'."
        ) from error
    with contextlib.redirect_stdout(io.StringIO()):  # it tells of every step
        truth, seen = COCO(), COCO()
        truth.dataset = _table(classes, len(targets), _objects(targets))
        seen.dataset = _table(classes, len(targets), _detection_rows(found))
        truth.createIndex()
        seen.createIndex()
        evaluation = COCOeval(truth, seen, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
    # overlaps x recalls x classes x area ranges x detections allowed; −1 where a class has no object
    precision = evaluation.eval["precision"][:, :, :, 0, -1]
    return {"mAP": _mean(precision), "mAP50": _mean(precision[0])}


def _mean(precision: Any) -> float:
    counted = precision[precision > -1]
    return float(np.mean(counted)) if counted.size else 0.0


def _table(classes: int, images: int, annotations: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "images": [{"id": number} for number in range(images)],
        "categories": [{"id": number} for number in range(classes)],
        "annotations": annotations,
    }


def _objects(targets: Sequence[Target]) -> list[dict[str, Any]]:
    annotations: list[dict[str, Any]] = []
    for image, target in enumerate(targets):
        for box, label, difficult in zip(target.boxes, target.labels, target.difficult, strict=True):
            row = _row(len(annotations), image, box, label)
            annotations.append(row | ({"area": OUT_OF_RANGE} if difficult else {}))
    return annotations


def _detection_rows(detections: Sequence[Found]) -> list[dict[str, Any]]:
    annotations: list[dict[str, Any]] = []
    for image, seen in enumerate(detections):
        rows = zip(seen.boxes.numpy(), seen.labels.numpy(), seen.scores.numpy(), strict=True)
        for box, label, score in rows:
            annotations.append(_row(len(annotations), image, box, label) | {"score": float(score)})
    return annotations


def _row(number: int, image: int, box: Any, label: Any) -> dict[str, Any]:
    left, top, right, bottom = map(float, box)
    return {
        "id": number + 1,  # from 1: pycocotools takes 0 for an object that was not found
        "image_id": image,
        "category_id": int(label),
        "bbox": [left, top, right - left, bottom - top],
        "area": (right - left) * (bottom - top),
        "iscrowd": 0,
    }
