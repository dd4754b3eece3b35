"""Object detection: the loss of a YOLOv3, its boxes, and how good they are. All of it in float, outside the network."""

from quaver.detection.average_precision import average_precision
from quaver.detection.boxes import overlap, suppress
from quaver.detection.detect import Found, detect
from quaver.detection.detection_task import Detection
from quaver.detection.fitted_anchors import fitted_anchors
from quaver.detection.loss import yolo_loss

__all__ = ["Detection", "Found", "average_precision", "detect", "fitted_anchors", "overlap", "suppress", "yolo_loss"]
