"""A user who deploys: a folder with a model in it, numpy and an engine; nobody told them of torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import quaver
from tiny import Tiny

pytestmark = pytest.mark.slow

SERVICE = """
import sys
from concurrent.futures import ThreadPoolExecutor

sys.modules["torch"] = None  # whoever asks for it here fails

import numpy as np
import quaver.runtime

MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])

def prepared(photo):
    return ((photo / np.float32(255) - MEAN) / DEVIATION).transpose(2, 0, 1)[None]

folder, photos = sys.argv[1], np.load(sys.argv[2])
run = quaver.runtime.load(folder)
print(run.engine, [(port.name, port.shape) for port in run.inputs])

one_by_one = [run(prepared(photo)) for photo in photos]
with ThreadPoolExecutor(4) as requests:  # a web service
    at_once = list(requests.map(lambda photo: run(prepared(photo)), photos))
with quaver.runtime.Queue(run, streams=2) as queue:  # a video
    streamed = list(queue.map(prepared(photo) for photo in photos))
try:
    run(photos)
except quaver.errors.InputError as error:
    print(error)
np.save(sys.argv[3], [np.concatenate(way) for way in (one_by_one, at_once, streamed)])
"""


def test_one_by_one_in_threads_and_in_streams_the_folder_gives_what_was_trained(tmp_path):
    torch.manual_seed(0)
    qat = quaver.quant_aware(Tiny(), example_inputs=(torch.zeros(1, 3, 16, 16),)).train()
    for _ in range(2):
        qat(torch.randn(8, 3, 16, 16))
    quaver.export(program := quaver.convert(qat), tmp_path / "model")
    photos = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), np.uint8)
    np.save(tmp_path / "photos.npy", photos)

    command = [sys.executable, "-c", SERVICE, tmp_path / "model", tmp_path / "photos.npy", tmp_path / "logits.npy"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
    port, refusal = done.stdout.splitlines()
    assert port == "openvino [('x', (None, 3, 16, 16))]"
    assert refusal == "input 'x': shape (12, 16, 16, 3) does not fit the model's (any, 3, 16, 16)."
    one_by_one, at_once, streamed = np.load(tmp_path / "logits.npy")
    assert np.array_equal(at_once, one_by_one)
    assert np.array_equal(streamed, one_by_one)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    images = ((torch.from_numpy(photos) / 255 - mean) / deviation).permute(0, 3, 1, 2).contiguous()
    with torch.no_grad():
        assert np.array_equal(one_by_one, program.eval()(images).numpy())
