"""A detector, from float to an int8 model on its engine, and how well each finds shapes it has not seen."""

import pytest
import torch

import quaver
from quaver.data import Loader, open_dataset, write_shapes
from quaver.detection import Detection
from quaver.models import build

pytestmark = pytest.mark.slow

SIZE = 64
ANCHORS = (((9, 9), (12, 12), (15, 15)), ((18, 18), (22, 22), (26, 26)), ((30, 30), (36, 36), (44, 44)))


def fit(model, task, batches, epochs, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * len(batches), pct_start=0.2)
    model.train()
    for epoch in range(epochs):
        for images, targets in batches.epoch(epoch):
            loss = task.loss(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            schedule.step()


@pytest.fixture(scope="module")
def journey(tmp_path_factory):
    """The programs of every stage, and their figures."""
    folder = write_shapes(tmp_path_factory.mktemp("shapes"), train=256, val=48, size=SIZE)
    train, val = (open_dataset("voc", split, data_dir=folder, image_size=SIZE) for split in ("train", "val"))
    task = Detection(train.classes, SIZE, ANCHORS)
    batches, unseen = Loader(train, 8, shuffle=True), Loader(val, 16, shuffle=False)
    torch.manual_seed(0)
    model = build("yolov3_mobilenet_v1", num_classes=train.classes, image_size=SIZE, scale=0.25)
    fit(model, task, batches, epochs=6, lr=0.005)
    figures = {"float": task.evaluate(model, unseen)}
    qat = quaver.quant_aware(model, example_inputs=(torch.zeros(1, 3, SIZE, SIZE),))
    fit(qat, task, batches, epochs=1, lr=0.0005)
    frozen, int8 = quaver.convert(qat.eval(), save_int8=True)
    artefact = quaver.export(int8, folder / "engine")
    for stage, program in {"qat": qat, "frozen": frozen, "engine": quaver.runtime.load(artefact)}.items():
        figures[stage] = task.evaluate(program, unseen)
    return figures, qat, int8, artefact, val.batch(range(16))[0]


def test_the_int8_detector_finds_what_the_float_one_finds(journey):
    figures = journey[0]

    assert figures["float"]["mAP50"] > 0.6
    # of some 75 objects: another epoch of training moves the figure by half of this, either way
    assert figures["engine"]["mAP50"] > figures["float"]["mAP50"] - 0.1
    assert figures["engine"] == figures["frozen"] == figures["qat"]


def test_the_engine_gives_the_integers_that_were_trained(journey):
    _, _, int8, artefact, images = journey

    result = quaver.verify(int8, artefact, [images])

    assert result.integers_equal == 1
    assert len(result.layers) > 40


def test_every_layer_is_quantized_and_what_the_heads_give_is_float(journey):
    _, qat, int8, _, images = journey

    ops = {op.name: op for op in qat.ops()}

    assert all(op.quantized for op in ops.values() if op.type in ("conv2d", "depthwise_conv2d"))
    steps = [values.unique().numel() for values in int8(images)]
    assert min(steps) > 256  # more values than any grid of 8 bits has
