import numpy as np
import torch

from quaver.data import Target
from quaver.detection import yolo_loss
from quaver.detection.anchors import AnchorGrid, anchor_grid, by_anchor, published_anchors
from quaver.detection.loss import box_loss

SIZE, CLASSES = 64, 3
ANCHORS = published_anchors(SIZE)
WHERE = anchor_grid(SIZE, ANCHORS)
SURE = 20.0


def target(*boxes, labels=None, difficult=None):
    count = len(boxes)
    return Target(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(labels if labels is not None else [1] * count, np.int64),
        np.array(difficult if difficult is not None else [False] * count, np.bool_),
    )


def silent(images=1):
    """Maps that say, of every place, that nothing is there."""
    maps = [torch.zeros(images, 3 * (5 + CLASSES), SIZE // stride, SIZE // stride) for stride in (8, 16, 32)]
    for values in maps:
        values.view(images, 3, 5 + CLASSES, -1)[:, :, 4] = -SURE
    return tuple(maps)


def saying(one):
    """Maps that say of each object exactly what there is, and of every other place that nothing is."""
    maps = silent()
    flat = by_anchor(maps)[0]
    boxes = torch.from_numpy(one.boxes)
    number, found = WHERE.assigned(boxes)
    own = WHERE.at(found)
    middle, size = (boxes[number, :2] + boxes[number, 2:]) / 2, boxes[number, 2:] - boxes[number, :2]
    flat[found, :2] = ((middle - own.cells) / own.strides).logit()
    flat[found, 2:4] = (size / own.sizes).log()
    flat[found, 4] = SURE
    flat[found, 5:] = -SURE
    flat[found, 5 + torch.from_numpy(one.labels)[number]] = SURE
    counts = [3 * (SIZE // stride) ** 2 for stride in (8, 16, 32)]
    return tuple(
        part.view(3, -1, 5 + CLASSES).transpose(1, 2).reshape(values.shape)
        for part, values in zip(flat.split(counts), maps, strict=True)
    )


def test_saying_exactly_what_is_there_costs_least():
    one = target((8, 12, 20, 30), (40, 33, 60, 62), labels=[0, 2])
    right = yolo_loss(saying(one), [one], SIZE, ANCHORS)

    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        other = tuple(values + 0.2 * torch.randn(values.shape, generator=generator) for values in saying(one))
        assert yolo_loss(other, [one], SIZE, ANCHORS) > right


def test_the_loss_of_what_is_there_is_the_entropy_of_its_middle_and_nothing_else():
    one = target((8, 12, 20, 30))
    middle = torch.tensor([14.0, 21.0])
    # three anchors are like 12 x 18: two of the second map, with cells of 16, and one of the third
    in_cell = torch.stack([middle % stride / stride for stride in (16, 16, 32)])
    entropy = -(in_cell * in_cell.log() + (1 - in_cell) * (1 - in_cell).log()).sum() * (2 - 12 * 18 / SIZE**2)

    torch.testing.assert_close(yolo_loss(saying(one), [one], SIZE, ANCHORS), entropy, atol=1e-4, rtol=0)


def test_an_object_whose_place_has_its_box_but_does_not_say_so_costs():
    one = target((8, 12, 20, 30))
    unsure = tuple(values.clone() for values in saying(one))
    for values in unsure:
        values.view(3, 5 + CLASSES, -1)[:, 4] = -SURE

    assert yolo_loss(unsure, [one], SIZE, ANCHORS) > SURE - 1


def test_the_wrong_class_costs():
    one, other = (target((8, 12, 20, 30), labels=[label]) for label in (0, 2))

    assert yolo_loss(saying(other), [one], SIZE, ANCHORS) > yolo_loss(saying(one), [one], SIZE, ANCHORS) + SURE


def test_an_empty_image_costs_nothing_when_nothing_is_seen():
    assert yolo_loss(silent(), [target()], SIZE, ANCHORS) < 1e-4
    assert yolo_loss(tuple(values + 2 * SURE for values in silent()), [target()], SIZE, ANCHORS) > 100


def test_what_is_seen_where_nothing_is_costs_more_than_seeing_nothing():
    one = target((8, 12, 20, 30))

    assert (
        yolo_loss(saying(one), [target((40, 33, 60, 62))], SIZE, ANCHORS)
        > yolo_loss(silent(), [target()], SIZE, ANCHORS) + 10
    )


def test_a_difficult_object_may_be_seen_or_not():
    hard = target((8, 12, 20, 30), difficult=[True])

    assert yolo_loss(saying(hard), [hard], SIZE, ANCHORS) < 1e-4
    assert yolo_loss(silent(), [hard], SIZE, ANCHORS) < 1e-4


def test_a_box_of_no_size_is_no_infinite_loss():
    one = target((8, 12, 8, 12))

    assert yolo_loss(silent(), [one], SIZE, ANCHORS).isfinite()


def test_small_objects_weigh_more():
    values = torch.ones(1, 4)
    own = AnchorGrid(torch.zeros(1, 2), torch.full((1, 1), 64.0), torch.tensor([[10.0, 10.0]]))
    small, large = torch.tensor([[20.0, 20.0, 30.0, 30.0]]), torch.tensor([[0.0, 0.0, 50.0, 50.0]])

    # both have their middle at 25 and the same distance in anchors once the anchor is theirs
    of_small = box_loss(values, small, own, SIZE)
    of_large = box_loss(values, large, own._replace(sizes=torch.tensor([[50.0, 50.0]])), SIZE)

    assert of_small / of_large == (2 - 100 / SIZE**2) / (2 - 2500 / SIZE**2)


def test_the_loss_of_a_batch_is_the_mean_of_its_images():
    several = target((8, 12, 20, 30), (40, 33, 60, 62), (0, 0, 9, 9), labels=[0, 2, 1], difficult=[False, True, False])
    targets = [several, target(), target((30, 30, 50, 60))]
    generator = torch.Generator().manual_seed(0)
    maps = tuple(torch.randn(3, *values.shape[1:], generator=generator) for values in silent())

    each = [yolo_loss(tuple(values[k : k + 1] for values in maps), [own], SIZE, ANCHORS) for k, own in enumerate(targets)]

    torch.testing.assert_close(yolo_loss(maps, targets, SIZE, ANCHORS), torch.stack(each).mean())


def test_a_box_that_has_the_object_of_another_image_is_told_that_nothing_is_there():
    one = target((8, 12, 20, 30))
    both = tuple(torch.cat([values, values]) for values in saying(one))

    assert yolo_loss(both, [one, target()], SIZE, ANCHORS) > yolo_loss(both, [one, one], SIZE, ANCHORS) + SURE


def test_gradients_reach_every_map():
    maps = tuple(values.requires_grad_() for values in silent())

    yolo_loss(maps, [target((8, 12, 20, 30))], SIZE, ANCHORS).backward()

    assert all(values.grad.isfinite().all() for values in maps)
    assert all(values.grad.abs().sum() > 0 for values in maps)
