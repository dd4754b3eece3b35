"""What a capture needed goes when the program goes."""

import gc
import weakref

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import quaver


def test_a_capture_that_is_gone_leaves_nothing_of_torchs_knowledge_of_sizes(monkeypatch):
    made, begin = [], ShapeEnv.__init__

    def remembered(self, *args, **kwargs):
        made.append(weakref.ref(self))
        begin(self, *args, **kwargs)

    def capture():
        quaver.capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (torch.zeros(2, 3, 8, 8),))

    monkeypatch.setattr(ShapeEnv, "__init__", remembered)
    capture()
    first = len(made)
    capture()  # torch may hold on to the last
    gc.collect()

    assert first > 0
    assert [one for one in made[:first] if one() is not None] == []
