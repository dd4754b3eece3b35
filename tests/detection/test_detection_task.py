import ast
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from torch import nn

from children import child
from limits import AN_HOUR
from quaver.data import Loader, Target, open_dataset, write_shapes
from quaver.detection import Detection, detect
from quaver.detection.anchors import anchor_grid, published_anchors
from quaver.models import YOLOv3

SIZE = 64
TASK = Detection(classes=3, image_size=SIZE)


def maps_with(place, label, sureness=8.0, images=1):
    """Maps that see one object, at a place."""
    flat = torch.full((images, len(anchor_grid(SIZE, published_anchors(SIZE)).cells), 8), -20.0)
    flat[:, :, :4] = 0
    flat[:, place, 4] = flat[:, place, 5 + label] = sureness
    counts = [3 * (SIZE // stride) ** 2 for stride in (8, 16, 32)]
    return tuple(
        part.view(images, 3, -1, 8).transpose(2, 3).reshape(images, 24, SIZE // stride, SIZE // stride)
        for part, stride in zip(flat.split(counts, 1), (8, 16, 32), strict=True)
    )


class Fixed(nn.Module):
    """A model that sees the same in every image, and only in evaluation."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images):
        return maps_with(100, 1 if not self.training else 2, images=len(images))


def truth():
    where = anchor_grid(SIZE, published_anchors(SIZE))
    middle, half = where.cells[100] + where.strides[100] / 2, where.sizes[100] / 2
    box = torch.cat([middle - half, middle + half])[None].numpy()
    return Target(box, np.array([1]), np.array([False]))


def test_an_object_that_a_map_tells_of_is_found_where_it_is():
    (seen,) = detect(maps_with(100, 1), SIZE, published_anchors(SIZE))

    torch.testing.assert_close(seen.boxes, torch.from_numpy(truth().boxes))
    assert seen.labels.tolist() == [1]
    assert seen.scores.item() == pytest.approx(torch.tensor(8.0).sigmoid().item() ** 2)


def test_what_is_not_likely_enough_is_not_found():
    (seen,) = detect(maps_with(100, 1, sureness=0.0), SIZE, published_anchors(SIZE), least_score=0.3)

    assert len(seen.boxes) == 0


@pytest.mark.parametrize("training", [True, False])
def test_a_module_is_evaluated_in_evaluation_mode_and_left_in_its_own(training):
    model = Fixed().train(training)

    assert TASK.evaluate(model, [(torch.zeros(2, 3, SIZE, SIZE), [truth()] * 2)])["mAP50"] == pytest.approx(1)
    assert model.training == training


def test_an_engine_is_given_arrays_and_gives_the_same_figures():
    def run(images):
        assert isinstance(images, np.ndarray)
        return tuple(values.numpy() for values in maps_with(100, 1, images=len(images)))

    assert TASK.evaluate(run, [(torch.zeros(2, 3, SIZE, SIZE), [truth()] * 2)])["mAP50"] == pytest.approx(1)


def test_anchors_of_ones_own_are_used_in_training_and_after_it():
    anchors = tuple(tuple((8.0 * k, 8.0 * k) for _ in range(3)) for k in (1, 2, 3))
    task = Detection(classes=3, image_size=SIZE, anchors=anchors)

    (seen,) = task.find(Fixed().eval(), torch.zeros(1, 3, SIZE, SIZE))

    assert (seen.boxes[0, 2:] - seen.boxes[0, :2]).tolist() == [8, 8]
    assert task.loss(maps_with(100, 1), [truth()]) != TASK.loss(maps_with(100, 1), [truth()])


def test_a_loader_of_voc_data_goes_in_as_it_is(tmp_path):
    write_shapes(tmp_path, train=2, val=5, size=SIZE)
    data = open_dataset("voc", "val", data_dir=tmp_path, image_size=SIZE)
    model = YOLOv3(data.classes, 0.25)

    result = TASK.evaluate(model, Loader(data, 2, shuffle=False, workers=1))

    assert result.keys() == {"mAP", "mAP50"}
    images, targets = data.batch([0, 1])
    assert TASK.loss(model(images), targets).isfinite()


SCRIPT = """
import sys
import torch
from quaver.data import Loader, open_dataset
from quaver.detection import Detection, Found

rank, store, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
data = open_dataset("voc", "val", data_dir=folder, image_size=64)
boxes, labels, _ = map(torch.from_numpy, data[0][1])

class Told(Detection):
    def find(self, model, images):
        return [Found(boxes, torch.ones(len(boxes)), labels)] * len(images)  # right in the first image alone

loaders = [Loader(data, 4, shuffle=False, rank=rank, world=2), Loader(data, 4, shuffle=False)]
print([Told(3, 64).evaluate(None, loader) for loader in loaders])
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_count_what_all_of_them_have_seen(tmp_path):
    folder = write_shapes(tmp_path / "shapes", train=1, val=5, size=SIZE)
    commands = [[sys.executable, "-c", SCRIPT, str(rank), str(tmp_path / "store"), str(folder)] for rank in range(2)]

    with ExitStack() as stack:
        ranks = [stack.enter_context(child(command)) for command in commands]
        shared, alone = zip(*(ast.literal_eval(rank.communicate(timeout=AN_HOUR)[0]) for rank in ranks), strict=True)

    assert 0 < alone[0]["mAP50"] < 1
    for figures in (*shared, alone[1]):
        assert figures == alone[0]


@pytest.mark.slow
def test_importing_the_package_does_not_import_the_metric():
    code = "import sys, quaver.detection; print('pycocotools' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
